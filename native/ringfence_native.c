/* The compiled part of the fast path: plain records pass from librdkafka to librdkafka.
 *
 * A Piece holds consumed records; a Ring judges and remembers ids; a Span is a range of a piece's
 * records on its way to a producer. Everything else, every rule included, is in Python: what is not
 * certainly plain is left to it, record by record, in order.
 * What always holds: a piece owns all of its memory, so no object here outlives a Kafka client that
 * it needs; every read of bytes that came from outside is checked against their end.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* librdkafka's public ABI, as far as it is used: see rdkafka.h. */

typedef struct {
    int err;
    void *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} Message;

enum { V_TOPIC = 1, V_PARTITION = 3, V_VALUE, V_KEY, V_OPAQUE, V_FLAGS, V_TIMESTAMP, V_HEADERS = 10 };
enum { F_COPY = 2 };

typedef struct {
    int type;
    union {
        const char *text;
        void *pointer;
        int flags;
        int32_t partition;
        int64_t time;
        struct {
            const void *start;
            size_t length;
        } bytes;
        char padding[64];
    } as;
} Argument;

static struct {
    int (*version)(void);
    int (*type)(const void *);
    const void *(*conf)(void *);
    int (*conf_get)(const void *, const char *, char *, size_t *);
    void *(*queue_new)(void *);
    void (*queue_destroy)(void *);
    void *(*queue_get_partition)(void *, const char *, int32_t);
    void (*queue_forward)(void *, void *);
    ssize_t (*consume_batch_queue)(void *, int, Message **, size_t);
    void (*message_destroy)(Message *);
    int64_t (*message_timestamp)(const Message *, int *);
    const char *(*message_errstr)(const Message *);
    int (*message_detach_headers)(Message *, void **);
    const char *(*topic_name)(const void *);
    void *(*headers_new)(size_t);
    void (*headers_destroy)(void *);
    int (*header_add)(void *, const char *, ssize_t, const void *, ssize_t);
    int (*header_remove)(void *, const char *);
    int (*header_get_all)(const void *, size_t, const char **, const void **, size_t *);
    size_t (*header_cnt)(const void *);
    void *(*produceva)(void *, const Argument *, size_t);
    int (*error_code)(const void *);
    void (*error_destroy)(void *);
} rk;

static const char *const SYMBOLS[] = {
    "version", "type", "conf", "conf_get", "queue_new", "queue_destroy", "queue_get_partition",
    "queue_forward", "consume_batch_queue", "message_destroy", "message_timestamp",
    "message_errstr", "message_detach_headers", "topic_name", "headers_new", "headers_destroy",
    "header_add", "header_remove", "header_get_all", "header_cnt", "produceva", "error_code",
    "error_destroy",
};

/* Records. */

enum { PYTHON, SEND, SENT }; /* what becomes of a row: Python decides it, or its lane is followed */

typedef struct {
    PyObject_HEAD
    PyObject *ring;   /* NULL: it only forwards */
    PyObject *owner;  /* Python's name for it */
    PyObject *topic;  /* str */
    const char *name; /* of the topic, inside it */
    PyObject *prefix; /* bytes: what an added origin header begins with; NULL: none is added */
    int32_t keyed, unkeyed;
} Lane;

typedef struct {
    int64_t offset, own_offset, time;
    const char *value, *key; /* NULL: null */
    size_t value_length, key_length;
    void *headers;           /* NULL: none */
    Lane *lane;
    int32_t source, partition;
    uint32_t header_count;   /* without a stripped origin */
    bool is_readable, is_stripped, is_prepared;
    uint8_t fate;
} Row;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Row *rows;         /* grouped by source, each in the order in which they came */
    char *arena;       /* their keys and values */
    PyObject *sources; /* list of (topic, partition) */
    PyObject *errors;  /* list of (error, topic or None, partition) */
} Piece;

typedef struct {
    PyObject_HEAD
    Piece *piece;
    Py_ssize_t start, end;
} Span;

/* A ring. */

typedef struct {
    int64_t offset, time;
    size_t at; /* of the id, in names */
    uint32_t length, source, tag;
} Drafted;

typedef struct {
    uint64_t first;
    PyObject *value; /* NULL: it is read from the store */
} Stored;

typedef struct {
    PyObject_HEAD
    uint64_t *slots; /* tag and low half of a number; 0 is free */
    size_t slots_max, slots_used;
    uint64_t next, floor, capacity;
    int64_t committed_capacity; /* -1: none yet */
    Drafted *drafted;
    size_t drafted_count, drafted_max;
    char *names;
    size_t names_length, names_max;
    uint64_t *renewed; /* committed numbers whose ids the draft treats as new */
    size_t renewed_count;
    Stored *stored;
    size_t stored_start, stored_end, stored_max, stored_bytes;
    PyObject *read; /* NULL: segments are kept here */
} Ring;

static PyObject *KafkaError;
static PyTypeObject *LaneType, *PieceType, *SpanType, *RingType, *ReaderType;

static void *grown(void *items, size_t *max, size_t wanted, size_t size)
{
    if (wanted <= *max && items)
        return items;
    size_t more = *max ? *max : 16;
    while (more < wanted)
        more *= 2;
    void *moved = realloc(items, more * size);
    if (!moved)
        return PyErr_NoMemory();
    *max = more;
    return moved;
}

/* SipHash-1-3 under a key of the process: ids are chosen by others. */

static uint64_t hash_key[2];

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define ROUND()                                                                    \
    do {                                                                           \
        a += b, b = ROTATE(b, 13) ^ a, a = ROTATE(a, 32), c += d, d = ROTATE(d, 16) ^ c; \
        a += d, d = ROTATE(d, 21) ^ a, c += b, b = ROTATE(b, 17) ^ c, c = ROTATE(c, 32); \
    } while (0)

static uint32_t tag_of(const char *id, size_t length)
{
    uint64_t a = hash_key[0] ^ 0x736f6d6570736575, b = hash_key[1] ^ 0x646f72616e646f6d;
    uint64_t c = hash_key[0] ^ 0x6c7967656e657261, d = hash_key[1] ^ 0x7465646279746573, word;
    size_t rest = length;
    for (; rest >= 8; rest -= 8, id += 8) {
        memcpy(&word, id, 8);
        d ^= word;
        ROUND();
        a ^= word;
    }
    word = 0;
    memcpy(&word, id, rest);
    word |= (uint64_t)length << 56;
    d ^= word;
    ROUND();
    a ^= word;
    c ^= 0xff;
    for (int i = 0; i < 3; i++)
        ROUND();
    uint32_t tag = (uint32_t)(a ^ b ^ c ^ d);
    return tag ? tag : 1;
}

/* Segments, as state/segment.py writes them. */

enum { SEGMENT_IDS_MAX = 512, STORED_ID_BYTES_MAX = 64, FORGOTTEN_BYTES = 66, HEADER_BYTES = 31 };

typedef struct {
    int64_t base;
    int width; /* bytes of a distance; 0: all values are equal */
    const uint8_t *start;
} Column;

typedef struct {
    uint64_t first, floor, capacity;
    uint32_t count;
    Column lengths;
    const char *ids;
} Segment;

static uint64_t number_at(const uint8_t *at, int bytes)
{
    uint64_t found = 0;
    for (int i = bytes - 1; i >= 0; i--)
        found = found << 8 | at[i];
    return found;
}

static int64_t value_in(const Column *column, uint32_t row)
{
    uint64_t distance = 0;
    if (column->width)
        distance = number_at(column->start + (size_t)row * column->width, column->width);
    return (int64_t)((uint64_t)column->base + distance);
}

static const uint8_t *column_at(Column *column, const uint8_t *at, const uint8_t *end, uint32_t count)
{
    static const char CODES[] = "BHIQ";
    if (end - at < 9)
        return NULL;
    column->base = (int64_t)number_at(at, 8);
    const char *code = at[8] == '=' ? NULL : memchr(CODES, at[8], 4);
    if (!code && at[8] != '=')
        return NULL;
    column->width = code ? 1 << (code - CODES) : 0;
    column->start = at + 9;
    size_t bytes = (size_t)column->width * count;
    return (size_t)(end - column->start) < bytes ? NULL : column->start + bytes;
}

/* Whether the bytes are a segment; its origins are not read. */
static bool is_segment(Segment *found, const char *bytes, Py_ssize_t length)
{
    const uint8_t *at = (const uint8_t *)bytes, *end = at + length;
    if (length < HEADER_BYTES || at[0] != 1)
        return false;
    found->first = number_at(at + 1, 8), found->floor = number_at(at + 9, 8);
    found->capacity = number_at(at + 17, 8), found->count = (uint32_t)number_at(at + 25, 4);
    unsigned sources = (unsigned)number_at(at + 29, 2), left = sources;
    if (found->count > SEGMENT_IDS_MAX)
        return false;
    for (at += HEADER_BYTES; left; left--) {
        if (end - at < 6 || (size_t)(end - at) < 6 + number_at(at, 2))
            return false;
        at += 6 + number_at(at, 2);
    }
    if (!found->count)
        return at == end;
    for (int i = 0; i < 4; i++) {
        if (!(at = column_at(&found->lengths, at, end, found->count)))
            return false;
        /* The first column has indexes of sources; if all are equal, one is enough to look at. */
        uint32_t looked_at = i ? 0 : found->lengths.width ? found->count : 1;
        for (uint32_t row = 0; row < looked_at; row++)
            if ((uint64_t)value_in(&found->lengths, row) >= sources)
                return false;
    }
    found->ids = (const char *)at;
    int64_t rest = end - at, base = found->lengths.base;
    if (!found->lengths.width)
        return base >= 0 && base <= rest / found->count && base * found->count == rest;
    for (uint32_t row = 0; row < found->count; row++) {
        int64_t length_of = value_in(&found->lengths, row);
        if (length_of < 0 || length_of > rest)
            return false;
        rest -= length_of;
    }
    return !rest;
}

static const char *id_in(const Segment *segment, uint32_t row, size_t *length)
{
    const char *at = segment->ids;
    if (!segment->lengths.width)
        at += segment->lengths.base * row;
    else
        for (uint32_t before = 0; before < row; before++)
            at += value_in(&segment->lengths, before);
    *length = (size_t)value_in(&segment->lengths, row);
    return at;
}

typedef struct {
    char *bytes;
    size_t length, max;
} Buffer;

static bool put(Buffer *buffer, const void *bytes, size_t length)
{
    char *moved = grown(buffer->bytes, &buffer->max, buffer->length + length, 1);
    if (!moved)
        return false;
    buffer->bytes = moved;
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    return true;
}

static bool put_number(Buffer *buffer, uint64_t number, int bytes)
{
    uint8_t little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (uint8_t)(number >> 8 * i);
    return put(buffer, little, bytes);
}

static bool put_column(Buffer *buffer, const int64_t *column, size_t count)
{
    static const uint8_t WIDTHS[] = {1, 1, 2, 4, 4, 8, 8, 8, 8};
    static const char CODES[] = "=BH.I...Q";
    int64_t base = column[0], top = column[0];
    for (size_t i = 1; i < count; i++) {
        base = column[i] < base ? column[i] : base;
        top = column[i] > top ? column[i] : top;
    }
    int bytes = 0, width = 0;
    for (uint64_t span = (uint64_t)top - (uint64_t)base; span; span >>= 8)
        bytes++;
    if (bytes)
        width = WIDTHS[bytes];
    if (!put_number(buffer, (uint64_t)base, 8) || !put(buffer, &CODES[width], 1))
        return false;
    for (size_t i = 0; width && i < count; i++)
        if (!put_number(buffer, (uint64_t)column[i] - (uint64_t)base, width))
            return false;
    return true;
}

/* Ring: which ids are known. Numbers below `floor` are dead; those from `next` on are the draft's. */

static uint64_t following(const Ring *ring) { return ring->next + ring->drafted_count; }

static uint64_t full_number(const Ring *ring, uint64_t slot)
{
    return ring->floor + (uint32_t)((uint32_t)slot - (uint32_t)ring->floor);
}

static void place(uint64_t *slots, size_t mask, uint64_t slot)
{
    size_t at = (size_t)(slot >> 32) & mask;
    while (slots[at])
        at = (at + 1) & mask;
    slots[at] = slot;
}

/* Make room for one more slot: drop what is dead, and grow if little is. */
static bool has_room(Ring *ring)
{
    if (ring->slots_used < ring->slots_max - ring->slots_max / 8)
        return true;
    size_t live = 0, size = 16;
    for (size_t i = 0; i < ring->slots_max; i++)
        live += ring->slots[i] && full_number(ring, ring->slots[i]) < following(ring);
    while (size - size / 3 <= live + 1)
        size *= 2;
    uint64_t *slots = calloc(size, sizeof *slots);
    if (!slots)
        return PyErr_NoMemory() != NULL;
    for (size_t i = 0; i < ring->slots_max; i++)
        if (ring->slots[i] && full_number(ring, ring->slots[i]) < following(ring))
            place(slots, size - 1, ring->slots[i]);
    free(ring->slots);
    ring->slots = slots, ring->slots_max = size, ring->slots_used = live;
    return true;
}

static bool insert(Ring *ring, uint32_t tag, uint64_t number)
{
    if (!has_room(ring))
        return false;
    place(ring->slots, ring->slots_max - 1, (uint64_t)tag << 32 | (uint32_t)number);
    ring->slots_used++;
    return true;
}

/* Give a slot a number that is dead for the next 2^32 ids; long before that it is dropped. */
static void kill_slot(Ring *ring, uint32_t tag, uint64_t number)
{
    uint64_t slot = (uint64_t)tag << 32 | (uint32_t)number;
    size_t mask = ring->slots_max - 1, at = tag & mask;
    while (ring->slots[at] && ring->slots[at] != slot)
        at = (at + 1) & mask;
    if (ring->slots[at])
        ring->slots[at] = (uint64_t)tag << 32 | (uint32_t)(ring->floor - 1);
}

static void drop_draft(Ring *ring)
{
    for (size_t row = 0; row < ring->drafted_count; row++)
        kill_slot(ring, ring->drafted[row].tag, ring->next + row);
    ring->drafted_count = ring->names_length = ring->renewed_count = 0;
}

static Stored *stored_with(const Ring *ring, uint64_t number)
{
    size_t low = ring->stored_start, high = ring->stored_end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ring->stored[middle].first <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low > ring->stored_start ? &ring->stored[low - 1] : NULL;
}

/* Whether an id has a committed number; -1 with an exception if the store cannot be read. */
static int is_stored(Ring *ring, uint64_t number, const char *id, size_t length)
{
    for (size_t i = 0; i < ring->renewed_count; i++)
        if (ring->renewed[i] == number)
            return 0;
    Stored *stored = stored_with(ring, number);
    if (!stored)
        return 0;
    if (stored->value) {
        Segment segment;
        char *bytes;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(stored->value, &bytes, &size) < 0)
            return -1;
        if (!is_segment(&segment, bytes, size) || number - stored->first >= segment.count)
            return 0;
        size_t found_length;
        const char *found = id_in(&segment, (uint32_t)(number - stored->first), &found_length);
        return found_length == length && !memcmp(found, id, length);
    }
    PyObject *found = PyObject_CallFunction(ring->read, "KK", stored->first, number);
    if (!found)
        return -1;
    PyObject *bytes = PySequence_GetItem(found, 0);
    Py_DECREF(found);
    char *text;
    Py_ssize_t size;
    int same = -1;
    if (bytes && PyBytes_AsStringAndSize(bytes, &text, &size) == 0)
        same = (size_t)size == length && !memcmp(text, id, length);
    Py_XDECREF(bytes);
    return same;
}

/* The number of a known id in stored form, at least `least`; -1: not known, -2: an exception. */
static int64_t known(Ring *ring, const char *id, size_t length, uint32_t tag, uint64_t least)
{
    size_t mask = ring->slots_max - 1;
    for (size_t at = tag & mask; ring->slots_max && ring->slots[at]; at = (at + 1) & mask) {
        if (ring->slots[at] >> 32 != tag)
            continue;
        uint64_t number = full_number(ring, ring->slots[at]);
        if (number < least || number >= following(ring))
            continue;
        if (number >= ring->next) {
            const Drafted *row = &ring->drafted[number - ring->next];
            if (row->length == length && !memcmp(ring->names + row->at, id, length))
                return (int64_t)number;
            continue;
        }
        int same = is_stored(ring, number, id, length);
        if (same)
            return same < 0 ? -2 : (int64_t)number;
    }
    return -1;
}

static uint64_t lowest(const Ring *ring)
{
    uint64_t end = following(ring), least = end > ring->capacity ? end - ring->capacity : 0;
    return least > ring->floor ? least : ring->floor;
}

/* Judge an id in stored form and add it if it is new; returns as `known`. */
static int64_t admitted(Ring *ring, const char *id, size_t length, uint32_t source, int64_t offset,
                        int64_t time)
{
    uint32_t tag = tag_of(id, length);
    int64_t number = known(ring, id, length, tag, lowest(ring));
    if (number != -1)
        return number;
    Drafted *rows =
        grown(ring->drafted, &ring->drafted_max, ring->drafted_count + 1, sizeof *ring->drafted);
    if (!rows)
        return -2;
    ring->drafted = rows;
    char *names = grown(ring->names, &ring->names_max, ring->names_length + length, 1);
    if (!names)
        return -2;
    ring->names = names;
    if (!insert(ring, tag, following(ring)))
        return -2;
    memcpy(names + ring->names_length, id, length);
    rows[ring->drafted_count++] =
        (Drafted){offset, time, ring->names_length, (uint32_t)length, source, tag};
    ring->names_length += length;
    return -1;
}

/* What Python sees of a ring. */

static int Ring_init(Ring *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"read", NULL};
    PyObject *read = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &read))
        return -1;
    if (self->slots)
        return PyErr_SetString(PyExc_TypeError, "a ring is made once"), -1;
    self->slots_max = 16, self->committed_capacity = -1;
    if (!(self->slots = calloc(self->slots_max, sizeof *self->slots)))
        return PyErr_NoMemory(), -1;
    if (read != Py_None)
        self->read = Py_NewRef(read);
    return 0;
}

static void Ring_dealloc(Ring *self)
{
    for (size_t i = self->stored_start; i < self->stored_end; i++)
        Py_XDECREF(self->stored[i].value);
    Py_XDECREF(self->read);
    free(self->slots), free(self->drafted), free(self->names);
    free(self->renewed), free(self->stored);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* begin(capacity): drop what an earlier draft has left, and begin one. */
static PyObject *Ring_begin(Ring *self, PyObject *capacity)
{
    drop_draft(self);
    self->capacity = PyLong_AsUnsignedLongLong(capacity);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* admit(id, source, offset, time): the number of a known id in stored form, or None. */
static PyObject *Ring_admit(Ring *self, PyObject *args)
{
    const char *id;
    Py_ssize_t length;
    unsigned source;
    long long offset, time;
    if (!PyArg_ParseTuple(args, "y#ILL", &id, &length, &source, &offset, &time))
        return NULL;
    if (length > FORGOTTEN_BYTES)
        return PyErr_SetString(PyExc_ValueError, "the id is not in stored form"), NULL;
    int64_t number = admitted(self, id, (size_t)length, source, offset, time);
    if (number == -2)
        return NULL;
    return number == -1 ? Py_NewRef(Py_None) : PyLong_FromLongLong(number);
}

/* find(id): the same number without adding anything; the open draft counts. */
static PyObject *Ring_find(Ring *self, PyObject *args)
{
    const char *id;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y#", &id, &length))
        return NULL;
    int64_t number = known(self, id, (size_t)length, tag_of(id, (size_t)length), lowest(self));
    if (number == -2)
        return NULL;
    return number == -1 ? Py_NewRef(Py_None) : PyLong_FromLongLong(number);
}

/* renew(number): have the draft treat the id with this number as new. */
static PyObject *Ring_renew(Ring *self, PyObject *args)
{
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "K", &number))
        return NULL;
    if (number >= following(self))
        return PyErr_SetString(PyExc_IndexError, "no such number"), NULL;
    if (number >= self->next) {
        static const char FORGOTTEN[FORGOTTEN_BYTES] = {0};
        Drafted *row = &self->drafted[number - self->next];
        char *names =
            grown(self->names, &self->names_max, self->names_length + FORGOTTEN_BYTES, 1);
        if (!names)
            return NULL;
        self->names = names, row->at = self->names_length, row->length = FORGOTTEN_BYTES;
        memcpy(names + row->at, FORGOTTEN, FORGOTTEN_BYTES);
        self->names_length += FORGOTTEN_BYTES;
        Py_RETURN_NONE;
    }
    uint64_t *moved = realloc(self->renewed, (self->renewed_count + 1) * sizeof number);
    if (!moved)
        return PyErr_NoMemory();
    self->renewed = moved;
    self->renewed[self->renewed_count++] = number;
    Py_RETURN_NONE;
}

/* row(index): source, offset and time of an id that the draft has added. */
static PyObject *Ring_row(Ring *self, PyObject *args)
{
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "n", &index))
        return NULL;
    if (index < 0 || (size_t)index >= self->drafted_count)
        return PyErr_SetString(PyExc_IndexError, "the draft has no such row"), NULL;
    const Drafted *row = &self->drafted[index];
    return Py_BuildValue("ILL", row->source, (long long)row->offset, (long long)row->time);
}

/* counts(): for each source, how many ids the draft has added. */
static PyObject *Ring_counts(Ring *self, PyObject *Py_UNUSED(none))
{
    PyObject *found = PyDict_New();
    for (size_t i = 0, end; found && i < self->drafted_count; i = end) {
        uint32_t source = self->drafted[i].source;
        for (end = i + 1; end < self->drafted_count && self->drafted[end].source == source;)
            end++;
        PyObject *key = PyLong_FromUnsignedLong(source), *sum = NULL;
        PyObject *before = key ? PyDict_GetItemWithError(found, key) : NULL;
        if (key && !PyErr_Occurred())
            sum = PyLong_FromSize_t(end - i + (before ? PyLong_AsSize_t(before) : 0));
        if (!sum || PyDict_SetItem(found, key, sum) < 0)
            Py_CLEAR(found);
        Py_XDECREF(key), Py_XDECREF(sum);
    }
    return found;
}

/* encode(start, count, floor, sources): the bytes of a segment of drafted ids; `sources` are packed
 * as in a segment, all of which the draft knows. */
static PyObject *Ring_encode(Ring *self, PyObject *args)
{
    Py_ssize_t start, count;
    unsigned long long floor;
    PyObject *sources;
    if (!PyArg_ParseTuple(args, "nnKO!", &start, &count, &floor, &PyList_Type, &sources))
        return NULL;
    size_t known_sources = (size_t)PyList_Size(sources);
    if (start < 0 || count < 0 || count > SEGMENT_IDS_MAX ||
        (size_t)(start + count) > self->drafted_count)
        return PyErr_SetString(PyExc_IndexError, "the draft has no such rows"), NULL;
    const Drafted *rows = self->drafted + start;
    int64_t indexes[SEGMENT_IDS_MAX], column[SEGMENT_IDS_MAX];
    uint32_t used[SEGMENT_IDS_MAX], used_count = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t rank = 0;
        while (rank < used_count && used[rank] != rows[i].source)
            rank++;
        if (rank == used_count)
            used[used_count++] = rows[i].source;
        if (rows[i].source >= known_sources)
            return PyErr_SetString(PyExc_IndexError, "an unknown source"), NULL;
        indexes[i] = rank;
    }
    Buffer buffer = {0};
    PyObject *value = NULL;
    bool fits = put_number(&buffer, 1, 1) && put_number(&buffer, self->next + (uint64_t)start, 8) &&
                put_number(&buffer, floor, 8) && put_number(&buffer, self->capacity, 8) &&
                put_number(&buffer, (uint64_t)count, 4) && put_number(&buffer, used_count, 2);
    for (uint32_t i = 0; fits && i < used_count; i++) {
        char *bytes;
        Py_ssize_t length;
        fits = PyBytes_AsStringAndSize(PyList_GetItem(sources, used[i]), &bytes, &length) == 0 &&
               put(&buffer, bytes, (size_t)length);
    }
    if (fits && count) {
        fits = put_column(&buffer, indexes, (size_t)count);
        for (Py_ssize_t i = 0; i < count; i++)
            column[i] = rows[i].offset;
        fits = fits && put_column(&buffer, column, (size_t)count);
        for (Py_ssize_t i = 0; i < count; i++)
            column[i] = rows[i].time;
        fits = fits && put_column(&buffer, column, (size_t)count);
        for (Py_ssize_t i = 0; i < count; i++)
            column[i] = rows[i].length;
        fits = fits && put_column(&buffer, column, (size_t)count);
        for (Py_ssize_t i = 0; fits && i < count; i++)
            fits = put(&buffer, self->names + rows[i].at, rows[i].length);
    }
    if (fits)
        value = PyBytes_FromStringAndSize(buffer.bytes, (Py_ssize_t)buffer.length);
    free(buffer.bytes);
    return value;
}

static bool took(Ring *self, PyObject *value, const Segment *segment, bool is_own)
{
    Stored *stored =
        grown(self->stored, &self->stored_max, self->stored_end + 1, sizeof *self->stored);
    if (!stored)
        return false;
    self->stored = stored;
    self->floor = segment->floor > self->floor ? segment->floor : self->floor;
    self->next = segment->first + segment->count;
    self->committed_capacity = (int64_t)segment->capacity;
    if (!segment->count)
        return true;
    stored[self->stored_end++] = (Stored){segment->first, self->read ? NULL : Py_NewRef(value)};
    self->stored_bytes += self->read ? 0 : (size_t)PyBytes_Size(value);
    for (uint32_t row = 0; !is_own && row < segment->count; row++) {
        static const char FORGOTTEN[FORGOTTEN_BYTES] = {0};
        size_t size;
        const char *id = id_in(segment, row, &size);
        bool is_forgotten = size == FORGOTTEN_BYTES && !memcmp(id, FORGOTTEN, size);
        if (!is_forgotten && !insert(self, tag_of(id, size), segment->first + row))
            return false;
    }
    return true;
}

/* absorb(values, is_own): take over committed segments, the next ones. `is_own`: of the open draft,
 * which ends, and whose slots are there already. False if a value is no segment. */
static PyObject *Ring_absorb(Ring *self, PyObject *args)
{
    PyObject *values;
    int is_own;
    if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &values, &is_own))
        return NULL;
    if (!is_own)
        drop_draft(self);
    for (Py_ssize_t i = 0; i < PyList_Size(values); i++) {
        PyObject *value = PyList_GetItem(values, i);
        char *bytes;
        Py_ssize_t length;
        Segment segment;
        if (PyBytes_AsStringAndSize(value, &bytes, &length) < 0)
            return NULL;
        if (!is_segment(&segment, bytes, length))
            Py_RETURN_FALSE;
        if (!took(self, value, &segment, is_own))
            return NULL;
    }
    self->drafted_count = self->names_length = self->renewed_count = 0;
    Py_RETURN_TRUE;
}

/* drop(count): forget the first segments, whose ids are all dead. */
static PyObject *Ring_drop(Ring *self, PyObject *args)
{
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "n", &count))
        return NULL;
    for (; count > 0 && self->stored_start < self->stored_end; count--) {
        PyObject *value = self->stored[self->stored_start++].value;
        self->stored_bytes -= value ? (size_t)PyBytes_Size(value) : 0;
        Py_XDECREF(value);
    }
    if (self->stored_start > self->stored_max / 2) {
        memmove(self->stored, self->stored + self->stored_start,
                (self->stored_end - self->stored_start) * sizeof *self->stored);
        self->stored_end -= self->stored_start, self->stored_start = 0;
    }
    Py_RETURN_NONE;
}

/* evicted(): the first numbers of the segments that lie wholly below the floor. */
static PyObject *Ring_evicted(Ring *self, PyObject *Py_UNUSED(none))
{
    PyObject *found = PyList_New(0);
    for (size_t i = self->stored_start; found && i < self->stored_end; i++) {
        uint64_t end = i + 1 < self->stored_end ? self->stored[i + 1].first : self->next;
        if (end > self->floor)
            break;
        PyObject *first = PyLong_FromUnsignedLongLong(self->stored[i].first);
        if (!first || PyList_Append(found, first) < 0)
            Py_CLEAR(found);
        Py_XDECREF(first);
    }
    return found;
}

/* segment(number): the first number and the bytes of the segment that has it; None for the bytes if
 * they are in the store. */
static PyObject *Ring_segment(Ring *self, PyObject *args)
{
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "K", &number))
        return NULL;
    Stored *stored = stored_with(self, number);
    if (!stored)
        return PyErr_SetString(PyExc_IndexError, "no segment has this number"), NULL;
    return Py_BuildValue("KO", stored->first, stored->value ? stored->value : Py_None);
}

static PyObject *Ring_get(Ring *self, void *what)
{
    switch (*(const char *)what) {
    case 'n':
        return PyLong_FromUnsignedLongLong(self->next);
    case 'f':
        return PyLong_FromUnsignedLongLong(self->floor);
    case 'd':
        return PyLong_FromSize_t(self->drafted_count);
    case 'c':
        return self->committed_capacity < 0 ? Py_NewRef(Py_None)
                                            : PyLong_FromLongLong(self->committed_capacity);
    default:
        return PyLong_FromSize_t(self->slots_max * sizeof *self->slots + self->stored_bytes +
                                 (self->stored_end - self->stored_start) * 64);
    }
}

#define METHOD(type, name, flags) {#name, (PyCFunction)(void (*)(void))type##_##name, flags, NULL}

static PyMethodDef ring_methods[] = {
    METHOD(Ring, begin, METH_O),        METHOD(Ring, admit, METH_VARARGS),
    METHOD(Ring, find, METH_VARARGS),   METHOD(Ring, renew, METH_VARARGS),
    METHOD(Ring, row, METH_VARARGS),    METHOD(Ring, counts, METH_NOARGS),
    METHOD(Ring, encode, METH_VARARGS), METHOD(Ring, absorb, METH_VARARGS),
    METHOD(Ring, drop, METH_VARARGS),   METHOD(Ring, evicted, METH_NOARGS),
    METHOD(Ring, segment, METH_VARARGS), {0}};

static PyGetSetDef ring_fields[] = {{"next", (getter)Ring_get, NULL, NULL, "n"},
                                    {"floor", (getter)Ring_get, NULL, NULL, "f"},
                                    {"drafted", (getter)Ring_get, NULL, NULL, "d"},
                                    {"capacity", (getter)Ring_get, NULL, NULL, "c"},
                                    {"memory_bytes", (getter)Ring_get, NULL, NULL, "m"},
                                    {0}};

/* Lanes, pieces and spans. */

static int Lane_init(Lane *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ring", "topic", "keyed", "unkeyed", "owner", "prefix", NULL};
    PyObject *ring, *owner = Py_None, *prefix = Py_None;
    if (self->topic)
        return PyErr_SetString(PyExc_TypeError, "a lane is made once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUii|OO", names, &ring, &self->topic,
                                     &self->keyed, &self->unkeyed, &owner, &prefix))
        return self->topic = NULL, -1;
    Py_INCREF(self->topic);
    if (!(self->name = PyUnicode_AsUTF8AndSize(self->topic, NULL)))
        return -1;
    if (ring != Py_None && !PyObject_TypeCheck(ring, RingType))
        return PyErr_SetString(PyExc_TypeError, "not a ring"), -1;
    if (prefix != Py_None && !PyObject_TypeCheck(prefix, &PyBytes_Type))
        return PyErr_SetString(PyExc_TypeError, "not bytes"), -1;
    self->ring = ring == Py_None ? NULL : Py_NewRef(ring);
    self->owner = Py_NewRef(owner);
    self->prefix = prefix == Py_None ? NULL : Py_NewRef(prefix);
    return 0;
}

static void Lane_dealloc(Lane *self)
{
    Py_XDECREF(self->ring), Py_XDECREF(self->topic), Py_XDECREF(self->prefix);
    Py_XDECREF(self->owner);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static const char ORIGIN[] = "ringfence.origin";

typedef struct {
    const char *name, *value; /* a null value is NULL */
    size_t length;
} Header;

static Header header_of(const Row *row, uint32_t index)
{
    Header found = {"", NULL, 0};
    rk.header_get_all(row->headers, index, &found.name, (const void **)&found.value, &found.length);
    return found;
}

enum { HEADER_OVERHEAD_BYTES = 300 };

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if (*text & 0x80)
            return false;
    return true;
}

/* Whether all header names are UTF-8; else the record has no readable headers. */
static bool has_text(Row *row)
{
    for (uint32_t i = 0; row->is_readable && i < row->header_count; i++) {
        const char *name = header_of(row, i).name;
        if (is_ascii(name))
            continue;
        PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), NULL);
        row->is_readable = text != NULL;
        Py_XDECREF(text);
        PyErr_Clear();
    }
    return row->is_readable;
}

static Piece *new_piece(Py_ssize_t count)
{
    Piece *piece = PyObject_New(Piece, PieceType);
    if (!piece)
        return NULL;
    piece->rows = calloc(count ? (size_t)count : 1, sizeof *piece->rows);
    piece->count = count, piece->arena = NULL;
    piece->sources = PyList_New(0), piece->errors = PyList_New(0);
    if (!piece->rows || !piece->sources || !piece->errors) {
        Py_DECREF((PyObject *)piece);
        return (Piece *)PyErr_NoMemory();
    }
    return piece;
}

static void Piece_dealloc(Piece *self)
{
    for (Py_ssize_t i = 0; self->rows && i < self->count; i++) {
        if (self->rows[i].headers)
            rk.headers_destroy(self->rows[i].headers);
        Py_XDECREF((PyObject *)self->rows[i].lane);
    }
    free(self->rows), free(self->arena);
    Py_XDECREF(self->sources), Py_XDECREF(self->errors);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static const char *kept(char **end, const void *bytes, size_t length)
{
    char *start = *end;
    if (!bytes)
        return NULL;
    memcpy(start, bytes, length);
    *end += length;
    return start;
}

/* Copy messages into a piece, grouped by source; errors apart. The messages stay the caller's. */
static Piece *piece_of(Message **messages, Py_ssize_t count)
{
    size_t bytes = 1, sources = 0, max = 0;
    Py_ssize_t records = 0;
    struct Source {
        void *rkt;
        int32_t partition;
        Py_ssize_t next;
    } *list = NULL, *moved;
    int32_t *source_of = malloc((size_t)(count + 1) * sizeof *source_of);
    Piece *piece = NULL;
    if (!source_of)
        return (Piece *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        const Message *m = messages[i];
        source_of[i] = -1;
        if (m->err)
            continue;
        bytes += m->len + m->key_len, records++;
        size_t at = 0;
        while (at < sources && !(list[at].rkt == m->rkt && list[at].partition == m->partition))
            at++;
        if (at == sources) {
            if (!(moved = grown(list, &max, sources + 1, sizeof *list)))
                goto failed;
            list = moved, list[sources++] = (struct Source){m->rkt, m->partition, 0};
        }
        list[at].next++, source_of[i] = (int32_t)at;
    }
    if (!(piece = new_piece(records)))
        goto failed;
    if (!(piece->arena = malloc(bytes))) {
        PyErr_NoMemory();
        goto failed;
    }
    Py_ssize_t begin = 0;
    for (size_t at = 0; at < sources; at++) {
        PyObject *name = Py_BuildValue("si", rk.topic_name(list[at].rkt), (int)list[at].partition);
        if (!name || PyList_Append(piece->sources, name) < 0) {
            Py_XDECREF(name);
            goto failed;
        }
        Py_DECREF(name);
        Py_ssize_t size = list[at].next;
        list[at].next = begin, begin += size;
    }
    char *end = piece->arena;
    for (Py_ssize_t i = 0; i < count; i++) {
        Message *m = messages[i];
        if (source_of[i] < 0) {
            const char *topic = m->rkt ? rk.topic_name(m->rkt) : NULL, *text = rk.message_errstr(m);
            PyObject *reason = PyObject_CallFunction(KafkaError, "iz", m->err, text);
            PyObject *error = Py_BuildValue("Nzi", reason, topic, (int)m->partition);
            if (!error || PyList_Append(piece->errors, error) < 0) {
                Py_XDECREF(error);
                goto failed;
            }
            Py_DECREF(error);
            continue;
        }
        Row *row = &piece->rows[list[source_of[i]].next++];
        row->source = source_of[i], row->offset = row->own_offset = m->offset;
        row->time = rk.message_timestamp(m, &(int){0});
        row->value = kept(&end, m->payload, row->value_length = m->payload ? m->len : 0);
        row->key = kept(&end, m->key, row->key_length = m->key ? m->key_len : 0);
        row->is_readable = true;
        if (rk.message_detach_headers(m, &row->headers))
            row->headers = NULL;
        row->header_count = row->headers ? (uint32_t)rk.header_cnt(row->headers) : 0;
    }
    free(list), free(source_of);
    return piece;
failed:
    free(list), free(source_of);
    Py_XDECREF((PyObject *)piece);
    return NULL;
}

/* Piece(records, sources, errors): records are tuples (source, offset, time, key, value, headers),
 * in the order of their sources, which are indexes; headers are None if they are not readable. */
static PyObject *Piece_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *Py_UNUSED(kw))
{
    PyObject *records, *sources, *errors;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyList_Type, &records, &PyList_Type, &sources,
                          &PyList_Type, &errors))
        return NULL;
    Piece *piece = new_piece(PyList_Size(records));
    size_t bytes = 1;
    if (piece) {
        Py_DECREF(piece->sources), Py_DECREF(piece->errors);
        piece->sources = Py_NewRef(sources), piece->errors = Py_NewRef(errors);
    }
    for (Py_ssize_t i = 0; piece && i < piece->count; i++) {
        Row *row = &piece->rows[i];
        PyObject *headers;
        Py_ssize_t key, value;
        if (!PyArg_ParseTuple(PyList_GetItem(records, i), "iLLz#z#O", &row->source, &row->offset,
                              &row->time, &row->key, &key, &row->value, &value, &headers))
            goto failed;
        row->key_length = (size_t)key, row->value_length = (size_t)value;
        bytes += (size_t)key + (size_t)value, row->own_offset = row->offset;
        row->is_readable = headers != Py_None;
        if (!row->is_readable || !PyObject_IsTrue(headers))
            continue;
        row->headers = rk.headers_new((size_t)PySequence_Size(headers));
        for (Py_ssize_t at = 0; at < PySequence_Size(headers); at++) {
            const char *name, *text;
            Py_ssize_t length;
            PyObject *pair = PySequence_GetItem(headers, at);
            bool fits = pair && PyArg_ParseTuple(pair, "sz#", &name, &text, &length);
            if (fits)
                rk.header_add(row->headers, name, -1, text, text ? length : -1);
            Py_XDECREF(pair);
            if (!fits)
                goto failed;
        }
        row->header_count = (uint32_t)rk.header_cnt(row->headers);
    }
    if (!piece || !(piece->arena = malloc(bytes)))
        goto failed;
    char *end = piece->arena;
    for (Py_ssize_t i = 0; i < piece->count; i++) {
        Row *row = &piece->rows[i];
        row->key = kept(&end, row->key, row->key_length);
        row->value = kept(&end, row->value, row->value_length);
    }
    return (PyObject *)piece;
failed:
    Py_XDECREF((PyObject *)piece);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

static Row *row_at(Piece *self, PyObject *index)
{
    Py_ssize_t at = PyLong_AsSsize_t(index);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (at < 0 || at >= self->count)
        return PyErr_SetString(PyExc_IndexError, "the piece has no such record"), NULL;
    return &self->rows[at];
}

static bool is_range(const Piece *self, Py_ssize_t start, Py_ssize_t end)
{
    if (0 <= start && start <= end && end <= self->count)
        return true;
    PyErr_SetString(PyExc_IndexError, "the piece has no such records");
    return false;
}

static PyObject *bytes_of(const char *bytes, size_t length)
{
    return bytes ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length) : Py_NewRef(Py_None);
}

static PyObject *Piece_key(Piece *self, PyObject *index)
{
    const Row *row = row_at(self, index);
    return row ? bytes_of(row->key, row->key_length) : NULL;
}

static PyObject *Piece_value(Piece *self, PyObject *index)
{
    const Row *row = row_at(self, index);
    return row ? bytes_of(row->value, row->value_length) : NULL;
}

static PyObject *Piece_place(Piece *self, PyObject *index)
{
    const Row *row = row_at(self, index);
    return row ? Py_BuildValue("LL", (long long)row->offset, (long long)row->time) : NULL;
}

static PyObject *headers_of(const Row *row)
{
    PyObject *found = PyList_New(row->header_count);
    for (uint32_t i = 0; found && i < row->header_count; i++) {
        Header header = header_of(row, i);
        PyObject *pair = Py_BuildValue("sN", header.name, bytes_of(header.value, header.length));
        if (!pair)
            Py_CLEAR(found);
        else
            PyList_SetItem(found, i, pair);
    }
    return found;
}

/* headers(index): a list of pairs; None if a name is not text, or none can be read. */
static PyObject *Piece_headers(Piece *self, PyObject *index)
{
    const Row *row = row_at(self, index);
    if (!row)
        return NULL;
    if (row->fate == SENT)
        return PyErr_SetString(PyExc_ValueError, "the record was sent"), NULL;
    if (!row->is_readable)
        return Py_NewRef(Py_None);
    PyObject *found = headers_of(row);
    if (!found && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return found;
}

/* columns(start, end): offsets, times and sizes of values; the sum of sizes, the largest. */
static PyObject *Piece_columns(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    PyObject *lists[3] = {PyList_New(end - start), PyList_New(end - start), PyList_New(end - start)};
    bool fits = lists[0] && lists[1] && lists[2];
    for (Py_ssize_t i = start; fits && i < end; i++) {
        const Row *row = &self->rows[i];
        PyObject *items[3] = {PyLong_FromLongLong(row->offset), PyLong_FromLongLong(row->time),
                              PyLong_FromSize_t(row->value_length)};
        for (int column = 0; column < 3; column++) {
            fits = fits && items[column];
            PyList_SetItem(lists[column], i - start, items[column]);
        }
    }
    if (fits)
        return Py_BuildValue("NNN", lists[0], lists[1], lists[2]);
    for (int column = 0; column < 3; column++)
        Py_XDECREF(lists[column]);
    return NULL;
}

/* fitting(start, end, bytes): the end of the leading records that fit into so many bytes, at least
 * one, and the memory that they take. */
static PyObject *Piece_fitting(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    long long bytes_max, memory = 0, values = 0;
    if (!PyArg_ParseTuple(args, "nnL", &start, &end, &bytes_max) || !is_range(self, start, end))
        return NULL;
    Py_ssize_t i = start;
    for (; i < end; i++) {
        const Row *row = &self->rows[i];
        values += (long long)row->value_length;
        if (i > start && (values > bytes_max || memory >= bytes_max))
            break;
        memory += (long long)(row->value_length + row->key_length);
        for (uint32_t at = 0; at < row->header_count; at++) {
            Header header = header_of(row, at);
            memory += (long long)(strlen(header.name) + header.length) + HEADER_OVERHEAD_BYTES;
        }
    }
    return Py_BuildValue("nL", i, memory);
}

/* groups(start, end): (topic, partition, start, end) of the records of each source. */
static PyObject *Piece_groups(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    PyObject *found = PyList_New(0);
    for (Py_ssize_t next; found && start < end; start = next) {
        int32_t source = self->rows[start].source;
        for (next = start; next < end && self->rows[next].source == source;)
            next++;
        PyObject *name = PyList_GetItem(self->sources, source); /* borrowed */
        PyObject *group = name ? Py_BuildValue("Onn", name, start, next) : NULL;
        if (!group || PyList_Append(found, group) < 0)
            Py_CLEAR(found);
        Py_XDECREF(group);
    }
    return found;
}

/* Split an origin header "input@digits" off; false if the last header is none. */
static bool is_stripped(Row *row, Header *origin)
{
    if (!row->header_count || !has_text(row))
        return false;
    *origin = header_of(row, row->header_count - 1);
    if (strcmp(origin->name, ORIGIN) || !origin->value)
        return false;
    size_t at = origin->length;
    int64_t number = 0, unit = 1;
    for (; at && origin->value[at - 1] >= '0' && origin->value[at - 1] <= '9'; at--, unit *= 10) {
        if (origin->length - at >= 18)
            return false;
        number += unit * (origin->value[at - 1] - '0');
    }
    if (at < 2 || at == origin->length || origin->value[at - 1] != '@')
        return false;
    origin->length = at - 1;
    row->own_offset = number, row->is_stripped = true, row->header_count--;
    return true;
}

/* strip(start, end): runs (input, end) of records from one input, by their origin headers, which
 * are split off, and the column of their offsets there. b"" for records without one. */
static PyObject *Piece_strip(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    PyObject *runs = PyList_New(0), *offsets = PyList_New(end - start), *run = NULL;
    Header before = {NULL, "", 0};
    bool fits = runs && offsets;
    for (Py_ssize_t i = start; fits && i <= end; i++) {
        Header origin = {NULL, "", 0};
        if (i < end && !is_stripped(&self->rows[i], &origin))
            origin.value = "", origin.length = 0;
        bool is_new = i == end || i == start || origin.length != before.length ||
                      memcmp(origin.value, before.value, origin.length) != 0;
        if (is_new && i > start) {
            run = Py_BuildValue("y#n", before.value, (Py_ssize_t)before.length, i);
            fits = run && PyList_Append(runs, run) == 0;
            Py_XDECREF(run);
        }
        before = origin;
        if (i == end)
            break;
        Row *row = &self->rows[i];
        PyObject *offset = PyLong_FromLongLong(row->is_stripped ? row->own_offset : 0);
        fits = fits && offset;
        PyList_SetItem(offsets, i - start, offset);
    }
    if (fits)
        return Py_BuildValue("NN", runs, offsets);
    Py_XDECREF(runs), Py_XDECREF(offsets);
    return NULL;
}

/* A column of names, compared by C strings. */
typedef struct {
    const char *names[16];
    int count;
} Names;

static bool is_among(const Names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (names->names[i][0] == name[0] && !strcmp(names->names[i], name))
            return true;
    return false;
}

static int names_of(PyObject *texts, void *found)
{
    Names *names = found;
    Py_ssize_t count = PyTuple_Check(texts) ? PyTuple_Size(texts) : -1;
    if (count < 0 || count > 16)
        return PyErr_SetString(PyExc_TypeError, "not a tuple of at most 16 names"), 0;
    for (names->count = 0; names->count < count; names->count++)
        if (!(names->names[names->count] =
                  PyUnicode_AsUTF8AndSize(PyTuple_GetItem(texts, names->count), NULL)))
            return 0;
    return 1;
}

/* The field that decides where a record goes: `text` is NULL for none, "" for the key, else the
 * name of a header, of which the first value counts that is not null. */
static Header field_of(const Row *row, const char *text)
{
    Header found = {NULL, NULL, 0};
    if (text && !*text)
        return (Header){NULL, row->key, row->key_length};
    for (uint32_t i = 0; text && !found.value && i < row->header_count; i++) {
        Header header = header_of(row, i);
        if (!strcmp(header.name, text))
            found = header;
    }
    return found;
}

/* The entry of a dict for this field, borrowed; NULL without an exception if there is none. */
static PyObject *entry_of(PyObject *entries, const Header *field)
{
    PyObject *value = bytes_of(field->value, field->length);
    PyObject *found = value ? PyDict_GetItemWithError(entries, value) : NULL;
    Py_XDECREF(value);
    return found;
}

/* Whether the fast path may take a record, and its id. What is not certain is left to Python: ids
 * that have to be hashed, or that may be a stamp, and names beyond ASCII. */
static bool is_plain(const Row *row, const Names *ids, const Names *others, Header *id)
{
    *id = (Header){NULL, NULL, 0};
    if (!row->is_readable || row->time <= 0 || row->fate != PYTHON)
        return false;
    int origins = row->is_stripped ? 1 : 0;
    for (uint32_t i = 0; i < row->header_count; i++) {
        Header header = header_of(row, i);
        if (!is_ascii(header.name) || (origins && !strcmp(header.name, ORIGIN)))
            return false;
        bool is_id = is_among(ids, header.name);
        if (is_id || is_among(others, header.name)) {
            if (!is_id || id->value)
                return false;
            *id = header;
        }
    }
    return id->value && id->length <= STORED_ID_BYTES_MAX && !memchr(id->value, '/', id->length);
}

static void follow(Row *row, Lane *lane, int32_t partition)
{
    PyObject *before = (PyObject *)row->lane;
    row->lane = (Lane *)Py_NewRef((PyObject *)lane);
    Py_XDECREF(before);
    row->partition = partition, row->fate = SEND;
}

/* admit(start, end, lanes, field, ids, others, source, now, time): judge plain records and add new
 * ids to their rings, up to the first record that Python has to decide: one that is not plain, or
 * whose address has no lane, or whose id is known. Returns its index, the time before it, and if its
 * id is known: the owner of the lane, the number, the time after it, and its offset, timestamp and
 * id. */
static PyObject *Piece_admit(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    PyObject *lanes;
    const char *field;
    Names ids, others;
    unsigned source;
    long long now, time;
    if (!PyArg_ParseTuple(args, "nnO!zO&O&ILL", &start, &end, &PyDict_Type, &lanes, &field,
                          names_of, &ids, names_of, &others, &source, &now, &time) ||
        !is_range(self, start, end))
        return NULL;
    Lane *lane = NULL;
    Header last = {NULL, NULL, 0}, id = last;
    Py_ssize_t at = start;
    int64_t number = -1, before = time;
    for (; at < end; at++, before = time) {
        Row *row = &self->rows[at];
        if (row->time > time)
            time = row->time <= now ? row->time : now > time ? now : time;
        if (!is_plain(row, &ids, &others, &id))
            break;
        Header value = field_of(row, field);
        if (!lane || value.length != last.length || !value.value != !last.value ||
            (value.value && memcmp(value.value, last.value, value.length))) {
            lane = (Lane *)entry_of(lanes, &value), last = value;
            if (!lane || !PyObject_TypeCheck((PyObject *)lane, LaneType) || !lane->ring)
                break;
        }
        number = admitted((Ring *)lane->ring, id.value, id.length, source, row->own_offset, time);
        if (number != -1)
            break;
        follow(row, lane, row->key ? lane->keyed : lane->unkeyed);
    }
    if (number == -2 || PyErr_Occurred())
        return NULL;
    if (number < 0)
        return Py_BuildValue("nLO", at, (long long)before, Py_None);
    const Row *row = &self->rows[at];
    return Py_BuildValue("nL(OLLLLy#)", at, (long long)before, lane->owner, (long long)number,
                         (long long)time, (long long)row->own_offset, (long long)row->time, id.value,
                         (Py_ssize_t)id.length);
}

/* forward(start, end, partitions, field, lane): send records to the partition of a field's value,
 * with an origin header, up to the first one whose value is not among them. */
static PyObject *Piece_forward(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    PyObject *partitions, *lane;
    const char *field;
    if (!PyArg_ParseTuple(args, "nnO!zO!", &start, &end, &PyDict_Type, &partitions, &field,
                          LaneType, &lane) ||
        !is_range(self, start, end))
        return NULL;
    Py_ssize_t at = start;
    for (; at < end && self->rows[at].fate == PYTHON && has_text(&self->rows[at]); at++) {
        Header value = field_of(&self->rows[at], field);
        PyObject *found = entry_of(partitions, &value);
        if (!found)
            break;
        follow(&self->rows[at], (Lane *)lane, (int32_t)PyLong_AsLong(found));
    }
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at);
}

/* span(start, end): these records on their way to a producer. */
static PyObject *Piece_span(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    for (Py_ssize_t i = start; i < end; i++)
        if (self->rows[i].fate != SEND)
            return PyErr_SetString(PyExc_ValueError, "Python decides this record"), NULL;
    Span *span = PyObject_New(Span, SpanType);
    if (span)
        span->piece = (Piece *)Py_NewRef((PyObject *)self), span->start = start, span->end = end;
    return (PyObject *)span;
}

static PyObject *Piece_get(Piece *self, void *Py_UNUSED(what)) { return Py_NewRef(self->errors); }

static Py_ssize_t Piece_length(Piece *self) { return self->count; }

static PyMethodDef piece_methods[] = {
    METHOD(Piece, key, METH_O),           METHOD(Piece, value, METH_O),
    METHOD(Piece, place, METH_O),         METHOD(Piece, headers, METH_O),
    METHOD(Piece, columns, METH_VARARGS), METHOD(Piece, fitting, METH_VARARGS),
    METHOD(Piece, groups, METH_VARARGS),  METHOD(Piece, strip, METH_VARARGS),
    METHOD(Piece, admit, METH_VARARGS),   METHOD(Piece, forward, METH_VARARGS),
    METHOD(Piece, span, METH_VARARGS),    {0}};

static PyGetSetDef piece_fields[] = {{"errors", (getter)Piece_get, NULL, NULL, NULL}, {0}};

/* Change the headers to what is sent; once only, since a full queue has a record sent again. */
static bool is_prepared(Row *row)
{
    if (row->is_prepared)
        return true;
    if (row->is_stripped)
        rk.header_remove(row->headers, ORIGIN);
    if (row->lane->prefix) {
        char text[24];
        const char *prefix = PyBytes_AsString(row->lane->prefix);
        size_t length = (size_t)PyBytes_Size(row->lane->prefix);
        int digits = PyOS_snprintf(text, sizeof text, "@%lld", (long long)row->offset);
        char *value = malloc(length + (size_t)digits);
        if (value && !row->headers)
            row->headers = rk.headers_new(1);
        if (!value)
            return PyErr_NoMemory() != NULL;
        memcpy(value, prefix, length), memcpy(value + length, text, (size_t)digits);
        rk.header_add(row->headers, ORIGIN, -1, value, (ssize_t)(length + (size_t)digits));
        free(value);
    }
    row->header_count = row->headers ? (uint32_t)rk.header_cnt(row->headers) : 0;
    return row->is_prepared = true;
}

/* send(client): produce the records; 0, or the error code with which one was refused. A further call
 * goes on with that record. */
static PyObject *Span_send(Span *self, PyObject *client)
{
    void *producer = PyLong_AsVoidPtr(client);
    if (!producer)
        return PyErr_Occurred() ? NULL : PyLong_FromLong(0);
    int code = 0;
    for (; self->start < self->end; self->start++) {
        Row *row = &self->piece->rows[self->start];
        if (!is_prepared(row))
            return NULL;
        Argument arguments[] = {
            {V_TOPIC, {.text = row->lane->name}},
            {V_PARTITION, {.partition = row->partition}},
            {V_FLAGS, {.flags = F_COPY}},
            {V_KEY, {.bytes = {row->key, row->key_length}}},
            {V_VALUE, {.bytes = {row->value, row->value_length}}},
            {V_TIMESTAMP, {.time = row->time > 0 ? row->time : 0}},
            {V_HEADERS, {.pointer = row->headers}},
        };
        void *error = rk.produceva(producer, arguments, row->headers ? 7 : 6);
        if (error) {
            code = rk.error_code(error);
            rk.error_destroy(error);
            break;
        }
        row->headers = NULL, row->header_count = 0, row->fate = SENT;
    }
    return PyLong_FromLong(code);
}

/* outputs(): the arguments of `Producer.produce` for each record. */
static PyObject *Span_outputs(Span *self, PyObject *Py_UNUSED(none))
{
    PyObject *found = PyList_New(self->end - self->start);
    for (Py_ssize_t i = self->start; found && i < self->end; i++) {
        Row *row = &self->piece->rows[i];
        PyObject *headers = is_prepared(row) ? headers_of(row) : NULL;
        PyObject *output =
            headers ? Py_BuildValue("ONNiOOLN", row->lane->topic,
                                    bytes_of(row->value, row->value_length),
                                    bytes_of(row->key, row->key_length), (int)row->partition,
                                    Py_None, Py_None,
                                    (long long)(row->time > 0 ? row->time : 0), headers)
                    : NULL;
        if (!output)
            Py_CLEAR(found);
        else
            PyList_SetItem(found, i - self->start, output);
    }
    return found;
}

static Py_ssize_t Span_length(Span *self) { return self->end - self->start; }

static void Span_dealloc(Span *self)
{
    Py_DECREF((PyObject *)self->piece);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef span_methods[] = {
    METHOD(Span, send, METH_O), METHOD(Span, outputs, METH_NOARGS), {0}};

/* A reader: a queue of our own, to which the partitions of a consumer are forwarded. The consumer's
 * own queue is served by its Python client, whose callbacks need that. */

typedef struct {
    PyObject_HEAD
    void *client, *queue;
    Message **messages;
    size_t max;
} Reader;

static int Reader_init(Reader *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *client;
    if (!PyArg_ParseTuple(args, "O", &client) || !(self->client = PyLong_AsVoidPtr(client)))
        return -1;
    self->queue = rk.queue_new(self->client);
    return self->queue ? 0 : (PyErr_NoMemory(), -1);
}

/* forward(topic, partition): have the records of a partition come here; to be repeated until the
 * first has come, since a client that stops fetching drops it later, in the background. */
static PyObject *Reader_forward(Reader *self, PyObject *args)
{
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(args, "si", &topic, &partition))
        return NULL;
    void *queue = self->queue ? rk.queue_get_partition(self->client, topic, partition) : NULL;
    if (!queue)
        return PyErr_SetString(PyExc_RuntimeError, "the partition has no queue"), NULL;
    rk.queue_forward(queue, self->queue);
    rk.queue_destroy(queue);
    Py_RETURN_NONE;
}

/* consume(max, timeout_ms): a Piece of the records and errors that come in this time. */
static PyObject *Reader_consume(Reader *self, PyObject *args)
{
    Py_ssize_t max;
    int timeout_ms;
    if (!PyArg_ParseTuple(args, "ni", &max, &timeout_ms))
        return NULL;
    if (!self->queue || max < 0)
        return PyErr_SetString(PyExc_RuntimeError, "the reader is closed"), NULL;
    Message **messages = grown(self->messages, &self->max, (size_t)max, sizeof *messages);
    if (!messages)
        return NULL;
    self->messages = messages;
    ssize_t count;
    Py_BEGIN_ALLOW_THREADS
    count = rk.consume_batch_queue(self->queue, timeout_ms, messages, (size_t)max);
    Py_END_ALLOW_THREADS
    Piece *piece = piece_of(messages, count < 0 ? 0 : count);
    for (ssize_t i = 0; i < count; i++)
        rk.message_destroy(messages[i]);
    return (PyObject *)piece;
}

static PyObject *Reader_close(Reader *self, PyObject *Py_UNUSED(none))
{
    if (self->queue)
        rk.queue_destroy(self->queue);
    self->queue = NULL;
    Py_RETURN_NONE;
}

static void Reader_dealloc(Reader *self)
{
    if (self->queue)
        rk.queue_destroy(self->queue);
    free(self->messages);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef reader_methods[] = {METHOD(Reader, forward, METH_VARARGS),
                                       METHOD(Reader, consume, METH_VARARGS),
                                       METHOD(Reader, close, METH_NOARGS),
                                       {0}};

/* The module. */

/* bind(path, key, error): find librdkafka, which must be loaded already; returns its version. */
static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path, *key;
    Py_ssize_t length;
    PyObject *error;
    if (!PyArg_ParseTuple(args, "sy#O", &path, &key, &length, &error))
        return NULL;
    Py_XDECREF(KafkaError);
    KafkaError = Py_NewRef(error);
    if (length != sizeof hash_key)
        return PyErr_SetString(PyExc_ValueError, "the key has 16 bytes"), NULL;
    memcpy(hash_key, key, sizeof hash_key);
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return PyErr_Format(PyExc_ImportError, "%s is not loaded", path);
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
        char name[64];
        PyOS_snprintf(name, sizeof name, "rd_kafka_%s", SYMBOLS[i]);
        void *symbol = dlsym(library, name);
        if (!symbol)
            return PyErr_Format(PyExc_ImportError, "%s has no %s", path, name);
        memcpy((char *)&rk + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return PyLong_FromLong(rk.version());
}

/* client_of(handle, type, name): the address of the client in a handle of confluent_kafka, and the
 * value of one of its properties. To be asked only of versions whose layout is known. */
static PyObject *client_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *handle;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os", &handle, &name))
        return NULL;
    void *client;
    memcpy(&client, (char *)handle + sizeof(PyObject), sizeof client);
    char value[512];
    size_t size = sizeof value;
    if (!client || rk.conf_get(rk.conf(client), name, value, &size))
        return PyErr_SetString(PyExc_ValueError, "the client has no such property"), NULL;
    return Py_BuildValue("Nis", PyLong_FromVoidPtr(client), rk.type(client), value);
}

static PyMethodDef functions[] = {{"bind", bind, METH_VARARGS, NULL},
                                  {"client_of", client_of, METH_VARARGS, NULL},
                                  {0}};

#define TYPE(type, flags, ...)                                                                  \
    static PyType_Slot type##_slots[] = {{Py_tp_dealloc, type##_dealloc}, __VA_ARGS__, {0, NULL}}; \
    static PyType_Spec type##_spec = {"ringfence_native." #type, sizeof(type), 0,                 \
                                      Py_TPFLAGS_DEFAULT | (flags), type##_slots}

enum { NOT_MADE = Py_TPFLAGS_DISALLOW_INSTANTIATION };

TYPE(Ring, 0, {Py_tp_init, Ring_init}, {Py_tp_methods, ring_methods}, {Py_tp_getset, ring_fields});
TYPE(Lane, 0, {Py_tp_init, Lane_init});
TYPE(Piece, 0, {Py_tp_new, Piece_new}, {Py_tp_methods, piece_methods},
     {Py_tp_getset, piece_fields}, {Py_sq_length, Piece_length});
TYPE(Span, NOT_MADE, {Py_tp_methods, span_methods}, {Py_sq_length, Span_length});
TYPE(Reader, 0, {Py_tp_init, Reader_init}, {Py_tp_methods, reader_methods});

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ringfence_native", .m_size = -1,
                                 .m_methods = functions};

PyMODINIT_FUNC PyInit_ringfence_native(void)
{
    static struct {
        PyType_Spec *spec;
        PyTypeObject **type;
    } types[] = {{&Ring_spec, &RingType},
                 {&Lane_spec, &LaneType},
                 {&Piece_spec, &PieceType},
                 {&Span_spec, &SpanType},
                 {&Reader_spec, &ReaderType}};
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module && i < sizeof types / sizeof *types; i++) {
        *types[i].type = (PyTypeObject *)PyType_FromSpec(types[i].spec);
        if (!*types[i].type || PyModule_AddType(module, *types[i].type) < 0)
            Py_CLEAR(module);
    }
    return module;
}
