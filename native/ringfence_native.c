/* The compiled part of the fast path: plain records pass from librdkafka to librdkafka.
 *
 * A Piece holds consumed records, and sends those that were accepted, and the dead letters of
 * duplicates; a Table has the committed ids of a ring, with Runs for the older ones, a Draft those that a batch
 * adds, a Lane where the records of an address go; a Reader consumes. Everything else, every rule included, is in Python:
 * a record that is not certainly plain is left to it, record by record, in order.
 * What always holds: a piece owns all of its memory, so no object here outlives a Kafka client that
 * it needs; no object here takes part in a reference cycle; every read of bytes that came from
 * outside is checked against their end.
 */
#include "window.h"

#include <dlfcn.h>

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

#define FUNCTIONS(X)                                                                               \
    X(int, version, (void))                                                                        \
    X(int, type, (const void *))                                                                   \
    X(const void *, conf, (void *))                                                                \
    X(int, conf_get, (const void *, const char *, char *, size_t *))                               \
    X(void *, queue_new, (void *))                                                                 \
    X(void, queue_destroy, (void *))                                                               \
    X(void *, queue_get_partition, (void *, const char *, int32_t))                                \
    X(void, queue_forward, (void *, void *))                                                       \
    X(ssize_t, consume_batch_queue, (void *, int, Message **, size_t))                             \
    X(void, message_destroy, (Message *))                                                          \
    X(int64_t, message_timestamp, (const Message *, int *))                                        \
    X(const char *, message_errstr, (const Message *))                                             \
    X(int, message_detach_headers, (Message *, void **))                                           \
    X(const char *, topic_name, (const void *))                                                    \
    X(void *, headers_new, (size_t))                                                               \
    X(void, headers_destroy, (void *))                                                             \
    X(int, header_add, (void *, const char *, ssize_t, const void *, ssize_t))                     \
    X(int, header_remove, (void *, const char *))                                                  \
    X(int, header_get_all, (const void *, size_t, const char **, const void **, size_t *))         \
    X(size_t, header_cnt, (const void *))                                                          \
    X(void *, produceva, (void *, const Argument *, size_t))                                       \
    X(int, error_code, (const void *))                                                             \
    X(void, error_destroy, (void *))
#define DECLARED(result, name, parameters) result(*name) parameters;
#define NAMED(result, name, parameters) "rd_kafka_" #name,

static struct {
    FUNCTIONS(DECLARED)
} rk;

static const char *const SYMBOLS[] = {FUNCTIONS(NAMED)};

static PyTypeObject *LaneType, *PieceType, *ReaderType, *MergeType;

/* A Lane has what all plain records of an address share; it counts duplicates, and records that pass
 * without an id. */

typedef struct {
    PyObject_HEAD
    Draft *draft;                 /* NULL: Python decides records with an id */
    PyObject *texts;              /* what the pointers point into */
    const char *topic, *letter_topic;
    PyObject *letter_headers; /* NULL: Python decides duplicates that are not dropped */
    int keyed, unkeyed, letter_keyed, letter_unkeyed, drops, passes;
    uint64_t repeats, passed;
    int64_t dropped, dropped_at; /* the number of the first one, and when */
} Lane;

/* Lane(draft, topic, partition with a key, partition without, drops, passes, letter): `draft` may be
 * None; `letter` is None, or topic, partitions and headers of dead letters. A header is a name and the parts of its value: bytes,
 * or a number of what differs from letter to letter. */
static PyObject *Lane_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *draft, *letter, *headers = NULL;
    const char *topic, *letter_topic = NULL;
    int keyed, unkeyed, letter_keyed = 0, letter_unkeyed = 0, drops, passes;
    if (!PyArg_ParseTuple(args, "OsiippO", &draft, &topic, &keyed, &unkeyed, &drops, &passes,
                          &letter) ||
        (draft != Py_None && !PyObject_TypeCheck(draft, DraftType) &&
         !PyErr_Format(PyExc_TypeError, "no draft")) ||
        (letter != Py_None && !PyArg_ParseTuple(letter, "siiO!", &letter_topic, &letter_keyed,
                                                &letter_unkeyed, &PyTuple_Type, &headers)))
        return NULL;
    Lane *self = made(type);
    if (!self)
        return NULL;
    self->draft = draft == Py_None ? NULL : (Draft *)Py_NewRef(draft), self->texts = Py_NewRef(args);
    self->topic = topic, self->keyed = keyed, self->unkeyed = unkeyed;
    self->drops = drops, self->passes = passes;
    self->letter_topic = letter_topic, self->letter_headers = headers;
    self->letter_keyed = letter_keyed, self->letter_unkeyed = letter_unkeyed;
    return (PyObject *)self;
}

static void Lane_dealloc(Lane *self)
{
    Py_XDECREF((PyObject *)self->draft), Py_DECREF(self->texts);
    freed(self);
}

/* take(): how many duplicates there were since the last call, and number and time of the first one
 * that was dropped. */
static PyObject *Lane_take(Lane *self, PyObject *Py_UNUSED(none))
{
    PyObject *taken = Py_BuildValue("KLL", self->repeats, (long long)self->dropped,
                                    (long long)self->dropped_at);
    self->repeats = 0;
    return taken;
}

/* passed(): how many records without an id there were since the last call. */
static PyObject *Lane_passed(Lane *self, PyObject *Py_UNUSED(none))
{
    PyObject *passed = PyLong_FromUnsignedLongLong(self->passed);
    self->passed = 0;
    return passed;
}

/* Records. */

enum { UNKNOWN = -1, UNSURE = -2, IMPORTED = -1 };
enum { PYTHON, SEND, SENT, DROP }; /* what becomes of a row: Python decides it, or it goes on, or not */
enum { L_OFFSET, L_TIMESTAMP, L_ID, L_ORIGINAL }; /* what differs from letter to letter */
enum { HEADER_OVERHEAD_BYTES = 300, ID_BYTES_MAX = 64, NAMES_MAX = 32, DIGITS_MAX = 18 };

static const char ORIGIN[] = "ringfence.origin", REASON[] = "ringfence.reason";

/* What a dead letter says of a duplicate: the id, then where it was accepted. */
typedef struct {
    size_t id, original;
    char text[];
} Letter;

typedef struct {
    int64_t offset, own_offset, time, sent_time;
    const char *value, *key; /* NULL: null */
    size_t value_length, key_length, memory;
    void *headers;             /* NULL: none */
    PyObject *lane;            /* what has the two texts: a lane, or a tuple */
    const char *topic, *input; /* where it goes; what an added origin header begins with, or NULL */
    Letter *letter;            /* NULL: it goes on unchanged */
    int32_t source, partition;
    uint32_t header_count; /* without a stripped origin */
    bool is_ascii, is_stripped, is_prepared;
    uint8_t fate;
    uint64_t looked_by;     /* the draft whose committed ids were searched for its id; 0: none */
    int64_t candidate;      /* the only number that its id may have there; UNKNOWN: none, UNSURE: several */
} Row;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Row *rows;         /* grouped by source, each in the order in which they came */
    char *arena;       /* their keys and values */
    PyObject *sources; /* list of (topic, partition) */
    PyObject *errors;  /* list of (code, text, topic or None, partition) */
} Piece;

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

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if (*text & 0x80)
            return false;
    return true;
}

/* Fill the fields that are known from looking at all headers. */
static void look_at(Row *row)
{
    row->header_count = row->headers ? (uint32_t)rk.header_cnt(row->headers) : 0;
    row->is_ascii = true, row->memory = row->value_length + row->key_length;
    for (uint32_t i = 0; i < row->header_count; i++) {
        Header header = header_of(row, i);
        row->is_ascii = row->is_ascii && is_ascii(header.name);
        row->memory += strlen(header.name) + header.length + HEADER_OVERHEAD_BYTES;
    }
}

static Piece *new_piece(Py_ssize_t count, size_t bytes)
{
    Piece *piece = made(PieceType);
    if (!piece)
        return NULL;
    piece->rows = calloc((size_t)count + 1, sizeof *piece->rows), piece->count = count;
    piece->arena = malloc(bytes + 1);
    piece->sources = PyList_New(0), piece->errors = PyList_New(0);
    if (piece->rows && piece->arena && piece->sources && piece->errors)
        return piece;
    Py_DECREF((PyObject *)piece);
    return (Piece *)PyErr_NoMemory();
}

static void Piece_dealloc(Piece *self)
{
    for (Py_ssize_t i = 0; self->rows && i < self->count; i++) {
        if (self->rows[i].headers)
            rk.headers_destroy(self->rows[i].headers);
        Py_XDECREF(self->rows[i].lane);
        free(self->rows[i].letter);
    }
    free(self->rows), free(self->arena);
    Py_XDECREF(self->sources), Py_XDECREF(self->errors);
    freed(self);
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

/* Move messages into a piece, grouped by source; errors apart. What is left is the caller's. */
static Piece *piece_of(Message **messages, Py_ssize_t count)
{
    size_t bytes = 0;
    Py_ssize_t records = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!messages[i]->err)
            bytes += messages[i]->len + messages[i]->key_len, records++;
    Piece *piece = new_piece(records, bytes);
    bool fits = piece != NULL;
    Row *row = fits ? piece->rows : NULL;
    char *end = fits ? piece->arena : NULL;
    for (Py_ssize_t first = 0; fits && first < count; first++) {
        if (!messages[first])
            continue;
        int error = messages[first]->err, partition = messages[first]->partition;
        const void *rkt = messages[first]->rkt;
        const char *topic = rkt ? rk.topic_name(rkt) : NULL;
        if (error) {
            const char *text = rk.message_errstr(messages[first]);
            fits = listed(piece->errors, Py_BuildValue("izzi", error, text, topic, partition));
            continue;
        }
        fits = listed(piece->sources, Py_BuildValue("si", topic, partition));
        for (Py_ssize_t i = first; fits && i < count; i++) {
            Message *m = messages[i];
            if (!m || m->err || m->rkt != rkt || m->partition != partition)
                continue;
            row->source = (int32_t)PyList_Size(piece->sources) - 1;
            row->offset = row->own_offset = m->offset;
            row->time = rk.message_timestamp(m, &(int){0});
            row->value = kept(&end, m->payload, row->value_length = m->payload ? m->len : 0);
            row->key = kept(&end, m->key, row->key_length = m->key ? m->key_len : 0);
            if (rk.message_detach_headers(m, &row->headers))
                row->headers = NULL;
            look_at(row++);
            rk.message_destroy(m), messages[i] = NULL;
        }
    }
    if (!fits && piece)
        Py_DECREF((PyObject *)piece), piece = NULL;
    return piece;
}

static bool is_range(const Piece *self, Py_ssize_t start, Py_ssize_t end)
{
    if (0 <= start && start <= end && end <= self->count)
        return true;
    PyErr_SetString(PyExc_IndexError, "the piece has no such records");
    return false;
}

static Row *row_at(Piece *self, PyObject *index)
{
    Py_ssize_t at = PyLong_AsSsize_t(index);
    if (PyErr_Occurred() || !is_range(self, at, at + 1))
        return NULL;
    return &self->rows[at];
}

static PyObject *bytes_of(const char *bytes, size_t length)
{
    return bytes ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length) : Py_NewRef(Py_None);
}

/* record(index): offset, timestamp, key and value. */
static PyObject *Piece_record(Piece *self, PyObject *index)
{
    const Row *row = row_at(self, index);
    return row ? Py_BuildValue("LLNN", (long long)row->offset, (long long)row->time,
                               bytes_of(row->key, row->key_length),
                               bytes_of(row->value, row->value_length))
               : NULL;
}

/* The headers as a list of pairs; UnicodeDecodeError if a name is not text. */
static PyObject *headers_of(const Row *row)
{
    PyObject *found = PyList_New(0);
    for (uint32_t i = 0; found && i < row->header_count; i++) {
        Header header = header_of(row, i);
        if (!listed(found, Py_BuildValue("sN", header.name, bytes_of(header.value, header.length))))
            Py_CLEAR(found);
    }
    return found;
}

/* headers(index): a list of pairs; None if a name is not text. */
static PyObject *Piece_headers(Piece *self, PyObject *index)
{
    const Row *row = row_at(self, index);
    if (!row)
        return NULL;
    if (row->fate == SENT)
        return PyErr_SetString(PyExc_ValueError, "the record was sent"), NULL;
    PyObject *found = headers_of(row);
    if (!found && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return found;
}

/* columns(start, end): offsets, then timestamps, then sizes of values, as native int64. */
static PyObject *Piece_columns(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, (end - start) * 3 * (Py_ssize_t)sizeof(int64_t));
    char *at = found ? PyBytes_AsString(found) : NULL;
    for (int column = 0; found && column < 3; column++)
        for (const Row *row = self->rows + start; row < self->rows + end; row++) {
            int64_t values[] = {row->offset, row->time, (int64_t)row->value_length};
            memcpy(at, &values[column], sizeof *values);
            at += sizeof *values;
        }
    return found;
}

/* fitting(start, end, bytes): the end of the leading records that fit into so many bytes, at least
 * one, the memory that they take, and that of the largest of them. */
static PyObject *Piece_fitting(Piece *self, PyObject *args)
{
    Py_ssize_t start, end, at;
    unsigned long long bytes_max, memory = 0, values = 0, largest = 0;
    if (!PyArg_ParseTuple(args, "nnK", &start, &end, &bytes_max) || !is_range(self, start, end))
        return NULL;
    for (at = start; at < end; memory += self->rows[at++].memory) {
        values += self->rows[at].value_length;
        if (at > start && (values > bytes_max || memory >= bytes_max))
            break;
        if (self->rows[at].memory > largest)
            largest = self->rows[at].memory;
    }
    return Py_BuildValue("nKK", at, memory, largest);
}

/* beyond(start, end, needs_key, bytes): the records that take more memory than so many bytes, or that
 * need a key and have none. */
static PyObject *Piece_beyond(Piece *self, PyObject *args)
{
    Py_ssize_t start, end;
    int needs_key;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(args, "nnpK", &start, &end, &needs_key, &bytes) ||
        !is_range(self, start, end))
        return NULL;
    PyObject *found = PyList_New(0);
    for (Py_ssize_t at = start; found && at < end; at++) {
        const Row *row = &self->rows[at];
        bool is_beyond = row->memory > bytes || (needs_key && !row->key);
        if (is_beyond && !listed(found, PyLong_FromSsize_t(at)))
            Py_CLEAR(found);
    }
    return found;
}

/* source(start, end): (topic, partition) of the first of these records, and where its run ends. */
static PyObject *Piece_source(Piece *self, PyObject *args)
{
    Py_ssize_t start, end, at;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    for (at = start; at < end && self->rows[at].source == self->rows[start].source;)
        at++;
    PyObject *name = PyList_GetItem(self->sources, self->rows[start].source); /* borrowed */
    return name ? Py_BuildValue("On", name, at) : NULL;
}

/* Split an origin header "input@digits" off, which is the last one; return the input, empty if there
 * is none. A record that was split before is read again. */
static Header stripped(Row *row)
{
    static const Header NONE = {"", "", 0};
    uint32_t count = row->header_count + row->is_stripped;
    int64_t number = 0, unit = 1;
    if (!count || !row->headers)
        return NONE;
    Header origin = header_of(row, count - 1);
    size_t at = origin.value ? origin.length : 0;
    for (; at && origin.value[at - 1] >= '0' && origin.value[at - 1] <= '9'; at--, unit *= 10) {
        if (origin.length - at >= DIGITS_MAX)
            return NONE;
        number += unit * (origin.value[at - 1] - '0');
    }
    if (strcmp(origin.name, ORIGIN) || at < 2 || at == origin.length || origin.value[at - 1] != '@')
        return NONE;
    if (!row->is_ascii) {
        PyObject *headers = headers_of(row);
        PyErr_Clear();
        if (!headers)
            return NONE; /* Python cannot read them either */
        Py_DECREF(headers);
    }
    row->own_offset = number, row->is_stripped = true, row->header_count = count - 1;
    origin.length = at - 1;
    return origin;
}

/* strip(start, end): the input in the origin headers of the first run of these records, b"" for
 * none; where the run ends; and the offsets there, as native int64. */
static PyObject *Piece_strip(Piece *self, PyObject *args)
{
    Py_ssize_t start, end, at;
    if (!PyArg_ParseTuple(args, "nn", &start, &end) || !is_range(self, start, end))
        return NULL;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (end - start) * (Py_ssize_t)sizeof(int64_t));
    char *to = offsets ? PyBytes_AsString(offsets) : NULL;
    Header first = {"", "", 0};
    for (at = start; offsets && at < end; at++, to += sizeof(int64_t)) {
        Header input = stripped(&self->rows[at]);
        if (at == start)
            first = input;
        if (input.length != first.length || memcmp(input.value, first.value, first.length))
            break;
        memcpy(to, &self->rows[at].own_offset, sizeof(int64_t));
    }
    return Py_BuildValue("y#nN", first.value, (Py_ssize_t)first.length, at, offsets);
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

static bool is_same(const Header *one, const Header *other)
{
    return one->length == other->length && !one->value == !other->value &&
           (!one->value || !memcmp(one->value, other->value, one->length));
}

/* Names of headers, the first of which are of ids. */
typedef struct {
    const char *names[NAMES_MAX];
    Py_ssize_t count, ids;
} Names;

static int names_of(PyObject *pair, void *found)
{
    Names *names = found;
    PyObject *texts;
    if (!PyArg_ParseTuple(pair, "O!n", &PyTuple_Type, &texts, &names->ids))
        return 0;
    names->count = PyTuple_Size(texts);
    if (names->count > NAMES_MAX)
        return PyErr_SetString(PyExc_ValueError, "too many names"), 0;
    for (Py_ssize_t i = 0; i < names->count; i++)
        if (!(names->names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(texts, i), NULL)))
            return 0;
    return 1;
}

/* Whether at most one of the names stands in a record, and holds an id; the id is without a value if the
 * record has none. What is not certain is left to Python: ids that have to be hashed, null ids, and names
 * beyond ASCII. */
static bool has_one_id(const Row *row, const Names *names, Header *id)
{
    *id = (Header){NULL, NULL, 0};
    if (!row->is_ascii || row->time <= 0 || row->fate != PYTHON)
        return false;
    for (uint32_t i = 0; i < row->header_count; i++) {
        Header header = header_of(row, i);
        if (row->is_stripped && !strcmp(header.name, ORIGIN))
            return false; /* a second one would be removed with the first */
        for (Py_ssize_t at = 0; at < names->count; at++) {
            if (names->names[at][0] != header.name[0] || strcmp(names->names[at], header.name))
                continue;
            if (at >= names->ids || id->value || !header.value)
                return false;
            *id = header;
        }
    }
    return !id->value || id->length <= ID_BYTES_MAX;
}

/* Whether the fast path may take a record. Python tells whether an id is a bridge's stamp. */
static bool is_plain(const Row *row, const Names *names, Header *id)
{
    return has_one_id(row, names, id) && (!id->value || !memchr(id->value, '/', id->length));
}

/* `lane` keeps both texts. */
static void follow(Row *row, PyObject *lane, const char *topic, const char *input, int partition,
                   int64_t time)
{
    row->lane = Py_NewRef(lane), row->topic = topic, row->input = input;
    row->partition = partition, row->fate = SEND, row->sent_time = time > 0 ? time : 0;
}

/* The number of an id that is held, or UNKNOWN; UNSURE if only Python can tell. */
static int64_t number_of(const Draft *self, const char *id, size_t length, uint64_t hash, const Row *row,
                         Entry *found)
{
    Search search;
    uint64_t least = least_of(self);
    bool is_known = row->looked_by == self->serial && row->candidate != UNSURE;
    if (!is_known)
        begin_search(&search, self->table, hash, least, self->next);
    int64_t number = row_of(self, id, length, tag_of(hash));
    if (number >= 0) {
        const Added *at = &self->rows[number];
        long long partition;
        Py_ssize_t topic_length;
        if (!PyArg_ParseTuple(PyList_GetItem(self->sources, at->source), "s#L", &found->topic,
                              &topic_length, &partition))
            return UNSURE;
        found->topic_length = (size_t)topic_length, found->partition = partition;
        found->offset = at->offset, found->time = at->time;
        return (int64_t)self->next + number;
    }
    if (is_known) {
        if (row->candidate < 0 || (uint64_t)row->candidate < least)
            return UNKNOWN;
        const Segment *segment = segment_with(self->table, (uint64_t)row->candidate);
        if (!segment || self->has_renewed)
            return UNSURE;
        return has_id(segment, (uint64_t)row->candidate, id, length, found) ? row->candidate : UNKNOWN;
    }
    /* An id that was made new, or was seen again, is in older segments too; the newest number counts. */
    int64_t newest = UNKNOWN, unread = UNKNOWN;
    Entry entry;
    while ((number = next_found(&search)) >= 0) {
        const Segment *segment = segment_with(self->table, (uint64_t)number);
        if (self->has_renewed)
            return UNSURE;
        if (!segment)
            unread = number > unread ? number : unread;
        else if (number > newest && has_id(segment, (uint64_t)number, id, length, &entry))
            newest = number, *found = entry, search.floor = (uint64_t)number + 1;
    }
    return search.is_damaged || unread > newest ? UNSURE : newest;
}

/* The name under which the id of a record is remembered: that of a window has no publisher. */
typedef struct {
    char bytes[2 + ID_BYTES_MAX];
    const char *text;
    size_t length;
    uint64_t hash;
} Name;

static void name_in(Name *self, const Draft *draft, const Header *id)
{
    size_t head = draft->table->is_window ? sizeof self->bytes - ID_BYTES_MAX : 0;
    self->text = id->value, self->length = head + id->length;
    if (head) {
        memset(self->bytes, 0, head), memcpy(self->bytes + head, id->value, id->length);
        self->text = self->bytes;
    }
    self->hash = hash_of(draft->table->seed, self->text, self->length);
}

/* Search committed ids for those of the records from `at` on, and list the numbers whose segments are to
 * be read, each with where its segment began; so that many are read at once. */
static bool looked_ahead(Piece *self, Py_ssize_t at, Py_ssize_t end, PyObject *lanes, const char *field,
                         const Names *names, PyObject *lane, PyObject *wanted)
{
    const Draft *draft = ((Lane *)lane)->draft;
    for (; at < end && PyList_Size(wanted) < LENT_SEGMENTS; at++) {
        Row *row = &self->rows[at];
        Header id, value = field_of(row, field);
        if (!is_plain(row, names, &id) || !id.value || entry_of(lanes, &value) != lane)
            continue;
        Name name;
        Search search;
        int64_t number;
        name_in(&name, draft, &id);
        begin_search(&search, draft->table, name.hash, least_of(draft), draft->next);
        row->looked_by = draft->serial, row->candidate = UNKNOWN;
        while ((number = next_found(&search)) >= 0) {
            row->candidate = row->candidate == UNKNOWN ? number : UNSURE;
            if (!segment_with(draft->table, (uint64_t)number) &&
                !listed(wanted, Py_BuildValue("LK", (long long)number,
                                              first_of_found(&search, (uint64_t)number))))
                return false;
        }
        row->looked_by = search.is_damaged ? 0 : row->looked_by;
    }
    return !PyErr_Occurred();
}

/* Note that a duplicate was seen: its id has the origin of the original, and this time. */
static bool seen_again(Draft *self, const char *id, size_t length, uint64_t hash, int64_t number,
                       const Entry *original, int64_t time)
{
    Py_ssize_t source = index_of(self->sources, original);
    Added row = {.offset = original->offset, .time = time, .source = (uint32_t)source, .is_refreshed = true};
    return source >= 0 && seen_now(self, id, length, hash, row, number);
}

static bool begins(const Header *id, const char *text)
{
    return id->length >= strlen(text) && !memcmp(id->value, text, strlen(text));
}

/* Whether an id stands in a letter as it is. */
static bool is_shown(const Header *id)
{
    for (size_t i = 0; i < id->length; i++)
        if (id->value[i] < ' ' || id->value[i] > '~')
            return false;
    return !begins(id, "hex:") && !begins(id, "base64:");
}

/* Whether a record was a dead letter before: Python limits how many sets of headers it keeps. */
static bool was_letter(const Row *row)
{
    for (uint32_t i = 0; i < row->header_count; i++)
        if (!strcmp(header_of(row, i).name, REASON))
            return true;
    return false;
}

/* Drop a duplicate, or have its letter sent; false if Python has to. */
static bool repeats(Row *row, Lane *lane, const Header *id, int64_t number, const Entry *original,
                    int64_t now, int64_t time, PyObject *distances)
{
    if (lane->drops) {
        if (!lane->repeats++)
            lane->dropped = number, lane->dropped_at = time;
        row->fate = DROP;
        return true;
    }
    if (!lane->letter_headers || original->offset == IMPORTED || !is_shown(id) ||
        was_letter(row))
        return false;
    Text text = {NULL, 0, 0};
    bool fits = put(&text, &(Letter){0}, sizeof(Letter)) && put(&text, id->value, id->length) &&
                put(&text, original->topic, original->topic_length) && put(&text, "-", 1) &&
                put_number(&text, original->partition) && put(&text, "@", 1) &&
                put_number(&text, original->offset) &&
                listed(distances, PyLong_FromLongLong(time - original->time));
    row->letter = (Letter *)(void *)text.bytes;
    if (!fits)
        return false;
    row->letter->id = id->length;
    row->letter->original = text.used - sizeof(Letter) - id->length;
    follow(row, (PyObject *)lane, lane->letter_topic, NULL,
           row->key ? lane->letter_keyed : lane->letter_unkeyed, now);
    lane->repeats++;
    return true;
}

/* admit(start, end, lanes, field, names, source, now, distances, repeated, time): decide plain records, whose
 * ids are new or known for certain, or that pass without one, up to the first record that Python has to
 * decide: one that is not plain, or whose address has no lane, or whose id may be known. Returns its index,
 * the time, and in the last case its id and the numbers whose segments would tell, for records behind it
 * too. If the list `repeated` is empty, the index of the first duplicate goes there, with topic, partition,
 * offset and time of its original. */
static PyObject *Piece_admit(Piece *self, PyObject *args)
{
    Py_ssize_t start, end, at, source;
    PyObject *lanes, *distances, *repeated, *found = NULL, *doubtful = NULL, *wanted = NULL;
    const char *field;
    Names names;
    long long now, time;
    Name name;
    if (!PyArg_ParseTuple(args, "nnO!zO&nLO!O!L", &start, &end, &PyDict_Type, &lanes, &field, names_of,
                          &names, &source, &now, &PyList_Type, &distances, &PyList_Type, &repeated,
                          &time) ||
        !is_range(self, start, end))
        return NULL;
    Header last = {NULL, NULL, 0}, id;
    for (at = start; at < end; at++) {
        Row *row = &self->rows[at];
        Entry original;
        if (!is_plain(row, &names, &id))
            break;
        Header value = field_of(row, field);
        if (!found || !is_same(&value, &last)) {
            found = entry_of(lanes, &value), last = value;
            if (!found || !PyObject_TypeCheck(found, LaneType))
                break;
        }
        Lane *lane = (Lane *)found;
        if (id.value ? !lane->draft : !lane->passes)
            break;
        time = row->time <= time ? time : row->time <= now ? row->time : now > time ? now : time;
        if (!id.value) {
            follow(row, found, lane->topic, NULL, row->key ? lane->keyed : lane->unkeyed, row->time);
            lane->passed++;
            continue;
        }
        Draft *draft = lane->draft;
        bool is_window = draft->table->is_window;
        name_in(&name, draft, &id);
        int64_t number = number_of(draft, name.text, name.length, name.hash, row, &original), known = number;
        if (is_window && number >= 0 && is_old(original.time, time, draft->window.lasts_ms))
            known = UNKNOWN;
        if (known >= 0 && repeats(row, lane, &id, known, &original, now, time, distances)) {
            if (!PyList_Size(repeated) &&
                !listed(repeated, Py_BuildValue("ns#LLL", at, original.topic,
                                                (Py_ssize_t)original.topic_length,
                                                (long long)original.partition,
                                                (long long)original.offset,
                                                (long long)original.time)))
                break;
            if (is_window && draft->window.refreshes &&
                !seen_again(draft, name.text, name.length, name.hash, number, &original, time))
                break;
            continue;
        }
        Added new = {.offset = row->own_offset, .time = time, .source = (uint32_t)source};
        if (known != UNKNOWN ||
            !(is_window ? seen_now(draft, name.text, name.length, name.hash, new, number)
                        : added(draft, name.text, name.length, tag_of(name.hash), new, -1))) {
            wanted = PyList_New(0);
            if (wanted && number == UNSURE && row->looked_by != draft->serial)
                looked_ahead(self, at, end, lanes, field, &names, found, wanted);
            doubtful = bytes_of(id.value, id.length);
            break;
        }
        follow(row, found, lane->topic, NULL, row->key ? lane->keyed : lane->unkeyed, row->time);
    }
    if (PyErr_Occurred())
        return Py_XDECREF(doubtful), Py_XDECREF(wanted), NULL;
    return Py_BuildValue("nLNN", at, time, doubtful ? doubtful : Py_NewRef(Py_None),
                         wanted ? wanted : Py_NewRef(Py_None));
}

/* The hash by which Java clients choose a partition. */
static uint32_t murmur2(const char *text, size_t length)
{
    const uint32_t by = 0x5bd1e995;
    uint32_t hash = 0x9747b28c ^ (uint32_t)length;
    const unsigned char *at = (const unsigned char *)text, *end = at + length / 4 * 4;
    for (; at < end; at += 4) {
        uint32_t word = (uint32_t)little(at, 4) * by;
        hash = (hash * by) ^ ((word ^ word >> 24) * by);
    }
    if (length % 4)
        hash = (hash ^ (uint32_t)little(at, length % 4)) * by;
    hash = (hash ^ hash >> 13) * by;
    return hash ^ hash >> 15;
}

/* The partition of a record: `target` is its number, or a tuple of the start of the keys of ids and the
 * number for records without one. -1 if Python has to tell. */
static int partition_of(const Row *row, PyObject *target, const Names *names, int partitions, Text *key)
{
    Header id;
    const char *start;
    Py_ssize_t length;
    int number;
    if (!PyTuple_Check(target))
        return (int)PyLong_AsLong(target);
    if (!has_one_id(row, names, &id) || !PyArg_ParseTuple(target, "y#i", &start, &length, &number))
        return -1;
    if (!id.value)
        return number;
    key->used = 0;
    if (!put(key, start, (size_t)length) || !put(key, id.value, id.length))
        return -1;
    return (int)((murmur2(key->bytes, key->used) & 0x7fffffff) % (uint32_t)partitions);
}

/* forward(start, end, targets, field, topic, input, names, partitions): send records to the partition
 * that follows from a field's value, and their ids if its target says so, with an origin header if there
 * is an input, up to the first one for which Python has to tell. */
static PyObject *Piece_forward(Piece *self, PyObject *args)
{
    Py_ssize_t start, end, at, length;
    PyObject *targets;
    const char *field, *topic, *input;
    Names names;
    Text key = {NULL, 0, 0};
    int partitions;
    if (!PyArg_ParseTuple(args, "nnO!zsz#O&i", &start, &end, &PyDict_Type, &targets, &field, &topic,
                          &input, &length, names_of, &names, &partitions) ||
        !is_range(self, start, end))
        return NULL;
    if (partitions <= 0)
        return PyErr_SetString(PyExc_ValueError, "no partitions"), NULL;
    for (at = start; at < end; at++) {
        Row *row = &self->rows[at];
        Header value = field_of(row, field);
        PyObject *target = row->fate == PYTHON && row->is_ascii ? entry_of(targets, &value) : NULL;
        int partition = target ? partition_of(row, target, &names, partitions, &key) : -1;
        if (partition < 0 || PyErr_Occurred())
            break;
        follow(row, args, topic, input, partition, row->time);
    }
    free(key.bytes);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at);
}

/* Put the value of a letter's header together from its parts. */
static bool put_parts(Text *text, const Row *row, PyObject *parts)
{
    const Letter *letter = row->letter;
    bool fits = true;
    for (Py_ssize_t i = 0; fits && i < PyTuple_Size(parts); i++) {
        PyObject *part = PyTuple_GetItem(parts, i);
        long what = PyBytes_Check(part) ? -1 : PyLong_AsLong(part);
        if (PyBytes_Check(part))
            fits = put(text, PyBytes_AsString(part), (size_t)PyBytes_Size(part));
        else if (what == L_OFFSET || what == L_TIMESTAMP)
            fits = put_number(text, what == L_OFFSET ? row->own_offset : row->time);
        else if (what == L_ID || what == L_ORIGINAL)
            fits = put(text, letter->text + (what == L_ID ? 0 : letter->id),
                       what == L_ID ? letter->id : letter->original);
        else
            fits = PyErr_Occurred() || (PyErr_SetString(PyExc_ValueError, "no such part"), false);
    }
    return fits && !PyErr_Occurred();
}

static bool put_letter(Row *row)
{
    PyObject *headers = ((Lane *)row->lane)->letter_headers, *parts;
    Text text = {NULL, 0, 0};
    bool fits = true;
    for (Py_ssize_t i = 0; fits && i < PyTuple_Size(headers); i++) {
        const char *name;
        text.used = 0;
        fits = PyArg_ParseTuple(PyTuple_GetItem(headers, i), "sO!", &name, &PyTuple_Type, &parts) &&
               put_parts(&text, row, parts) &&
               !rk.header_add(row->headers, name, -1, text.used ? text.bytes : "", (ssize_t)text.used);
    }
    free(text.bytes);
    return fits;
}

/* Change the headers to what is sent; once only, since a full queue has a record sent again. */
static bool is_prepared(Row *row)
{
    if (row->is_prepared)
        return true;
    if (row->is_stripped)
        rk.header_remove(row->headers, ORIGIN);
    if (row->input) {
        PyObject *value = PyBytes_FromFormat("%s@%zd", row->input, (Py_ssize_t)row->offset);
        if (!value)
            return false;
        if (!row->headers)
            row->headers = rk.headers_new(1);
        rk.header_add(row->headers, ORIGIN, -1, PyBytes_AsString(value), PyBytes_Size(value));
        Py_DECREF(value);
    }
    return row->is_prepared = !row->letter || put_letter(row);
}

/* send(client, start, end): produce records that were not sent before; 0, or the error code with
 * which one was refused. A further call goes on with that record. */
static PyObject *Piece_send(Piece *self, PyObject *args)
{
    PyObject *address;
    Py_ssize_t start, end;
    if (!PyArg_ParseTuple(args, "O!nn", &PyLong_Type, &address, &start, &end) ||
        !is_range(self, start, end))
        return NULL;
    void *producer = PyLong_AsVoidPtr(address);
    if (!producer)
        return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_ValueError, "no client"), NULL);
    for (Row *row = self->rows + start; row < self->rows + end; row++) {
        if (row->fate == SENT || row->fate == DROP)
            continue;
        if (row->fate != SEND)
            return PyErr_SetString(PyExc_ValueError, "Python decides this record"), NULL;
        if (!is_prepared(row))
            return NULL;
        Argument arguments[] = {
            {V_TOPIC, {.text = row->topic}},
            {V_PARTITION, {.partition = row->partition}},
            {V_FLAGS, {.flags = F_COPY}},
            {V_KEY, {.bytes = {row->key, row->key_length}}},
            {V_VALUE, {.bytes = {row->value, row->value_length}}},
            {V_TIMESTAMP, {.time = row->sent_time}},
            {V_HEADERS, {.pointer = row->headers}},
        };
        void *error = rk.produceva(producer, arguments, row->headers ? 7 : 6);
        if (error) {
            int code = rk.error_code(error);
            rk.error_destroy(error);
            return PyLong_FromLong(code);
        }
        row->headers = NULL, row->header_count = 0, row->fate = SENT;
    }
    return PyLong_FromLong(0);
}

static PyObject *Piece_errors(Piece *self, void *Py_UNUSED(what)) { return Py_NewRef(self->errors); }

static Py_ssize_t Piece_length(Piece *self) { return self->count; }

/* A reader: a queue of our own, to which the partitions of a consumer are forwarded. The consumer's
 * own queue is served by its Python client, whose callbacks need that. */

typedef struct {
    PyObject_HEAD
    void *client, *queue;
    Message **messages;
    size_t max;
} Reader;

static PyObject *Reader_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *address;
    if (!PyArg_ParseTuple(args, "O!", &PyLong_Type, &address))
        return NULL;
    void *client = PyLong_AsVoidPtr(address);
    if (!client)
        return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_ValueError, "no client"), NULL);
    Reader *self = made(type);
    if (self)
        self->client = client, self->queue = rk.queue_new(client);
    return (PyObject *)self;
}

static void let_go(PyObject *capsule) { rk.queue_destroy(PyCapsule_GetPointer(capsule, NULL)); }

/* partition(topic, number): a handle of the queue of a partition, as it is assigned now. */
static PyObject *Reader_partition(Reader *self, PyObject *args)
{
    const char *topic;
    int number;
    if (!PyArg_ParseTuple(args, "si", &topic, &number))
        return NULL;
    void *queue = self->queue ? rk.queue_get_partition(self->client, topic, number) : NULL;
    if (!queue)
        return PyErr_SetString(PyExc_RuntimeError, "the partition has no queue"), NULL;
    return PyCapsule_New(queue, NULL, let_go);
}

/* forward(partition): have the records of a partition come here, those on its queue first. */
static PyObject *Reader_forward(Reader *self, PyObject *partition)
{
    void *queue = PyCapsule_GetPointer(partition, NULL);
    if (!queue)
        return NULL;
    if (!self->queue)
        return PyErr_SetString(PyExc_RuntimeError, "the reader is closed"), NULL;
    rk.queue_forward(queue, self->queue);
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
    if ((size_t)max > self->max) {
        Message **messages = realloc(self->messages, (size_t)max * sizeof *messages);
        if (!messages)
            return PyErr_NoMemory();
        self->messages = messages, self->max = (size_t)max;
    }
    ssize_t count;
    Py_BEGIN_ALLOW_THREADS
    count = rk.consume_batch_queue(self->queue, timeout_ms, self->messages, (size_t)max);
    Py_END_ALLOW_THREADS
    Piece *piece = piece_of(self->messages, count < 0 ? 0 : count);
    for (ssize_t i = 0; i < count; i++)
        if (self->messages[i])
            rk.message_destroy(self->messages[i]);
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
    Py_XDECREF(Reader_close(self, NULL));
    free(self->messages);
    freed(self);
}

/* A Run is open, and was checked; a Merge writes one of several. */

static PyObject *failed_with(int error, const char *path)
{
    if (error == DAMAGED)
        return PyErr_Format(PyExc_ValueError, "%s is damaged", path);
    if (error == ENOMEM)
        return PyErr_NoMemory();
    errno = error;
    return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
}

/* Run(path, check): open a run that was written with this check; ValueError if it is damaged. */
static PyObject *Run_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    const char *path;
    unsigned long long check;
    int error = 0, file;
    if (!PyArg_ParseTuple(args, "sK", &path, &check))
        return NULL;
    Run *self = made(type);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    file = open(path, O_RDONLY | O_CLOEXEC);
    self->file.file = file;
    error = file < 0 ? errno : open_run(&self->file, file, check);
    Py_END_ALLOW_THREADS
    if (!error)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return failed_with(error, path);
}

static void Run_dealloc(Run *self)
{
    close_run(&self->file);
    freed(self);
}

/* map(is_mapped): have the filter in memory, or read it for each id. */
static PyObject *Run_map(Run *self, PyObject *is_mapped)
{
    bool wanted = PyObject_IsTrue(is_mapped);
    Py_BEGIN_ALLOW_THREADS
    map_filter(&self->file, wanted);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *Run_filter(Run *self, void *Py_UNUSED(what))
{
    return PyLong_FromUnsignedLongLong(filter_bytes(&self->file.head));
}

static PyObject *Run_bytes(Run *self, void *Py_UNUSED(what))
{
    const RunFile *file = &self->file;
    uint64_t bytes = sizeof *self + directory_bytes(&file->head);
    return PyLong_FromUnsignedLongLong(bytes + (file->mapped ? filter_bytes(&file->head) : 0));
}

static PyObject *Run_first(Run *self, void *Py_UNUSED(what))
{
    return PyLong_FromUnsignedLongLong(self->file.head.first);
}

static PyObject *Run_end(Run *self, void *Py_UNUSED(what))
{
    return PyLong_FromUnsignedLongLong(self->file.head.end);
}

static PyObject *Run_mark(Run *self, void *Py_UNUSED(what))
{
    return PyLong_FromUnsignedLongLong(self->file.head.mark);
}

typedef struct {
    PyObject_HEAD
    PyObject *runs, *path;
    int file;
    Merger merger;
} Merge;

static int created(const char *path)
{
    return open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

/* Merge(path, runs, floor): write a run of these adjacent ones, oldest first, without the numbers
 * below the floor. */
static PyObject *Merge_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *path, *runs;
    unsigned long long floor;
    if (!PyArg_ParseTuple(args, "O&O!K", PyUnicode_FSConverter, &path, &PyTuple_Type, &runs, &floor))
        return NULL;
    Merge *self = made(type);
    if (!self)
        return Py_DECREF(path), NULL;
    self->path = path, self->runs = Py_NewRef(runs), self->file = -1;
    size_t count;
    RunFile **files = files_of(runs, &count);
    if (!files || !count) {
        free(files), Py_DECREF((PyObject *)self);
        return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_ValueError, "no runs"), NULL);
    }
    self->file = created(PyBytes_AsString(path));
    int error = self->file < 0 ? errno : begin_merge(&self->merger, self->file, files, count, floor);
    free(files);
    if (!error)
        return (PyObject *)self;
    failed_with(error, PyBytes_AsString(path));
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void Merge_dealloc(Merge *self)
{
    free_writer(self->merger.writer), free(self->merger.sources);
    if (self->file >= 0)
        close(self->file);
    Py_XDECREF(self->runs), Py_XDECREF(self->path);
    freed(self);
}

/* step(entries): merge at most so many; whether the file is whole now. */
static PyObject *Merge_step(Merge *self, PyObject *entries)
{
    size_t count = PyLong_AsSize_t(entries);
    bool is_done = false;
    int error;
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = merge_some(&self->merger, count, &is_done);
    Py_END_ALLOW_THREADS
    return error ? failed_with(error, PyBytes_AsString(self->path)) : PyBool_FromLong(is_done);
}

/* write_run(path, first, ids, check, mark): write a run of these ids, 16 bytes each, whose numbers are
 * consecutive from `first` on. */
static PyObject *write_run_at(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path;
    PyObject *ids;
    unsigned long long first, check, mark;
    int error, file;
    if (!PyArg_ParseTuple(args, "sKO!KK", &path, &first, &PyBytes_Type, &ids, &check, &mark))
        return NULL;
    const Hashed *hashed = (const Hashed *)(const void *)PyBytes_AsString(ids);
    size_t count = (size_t)PyBytes_Size(ids) / sizeof *hashed;
    Py_BEGIN_ALLOW_THREADS
    file = created(path);
    error = file < 0 ? errno : write_run(file, first, hashed, count, check, mark);
    if (file >= 0 && close(file) && !error)
        error = errno;
    Py_END_ALLOW_THREADS
    return error ? failed_with(error, path) : Py_NewRef(Py_None);
}

/* lookups(): how many ids were looked for in tables with runs, and for how many a file was read. */
static PyObject *lookups_of_process(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("KK", lookups, lookups_in_files);
}

/* The module. */

/* bind(path): find librdkafka, which must be loaded already; returns its version. */
static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return PyErr_Format(PyExc_ImportError, "%s is not loaded", path);
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
        void *symbol = dlsym(library, SYMBOLS[i]);
        if (!symbol)
            return PyErr_Format(PyExc_ImportError, "%s has no %s", path, SYMBOLS[i]);
        memcpy((char *)&rk + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return PyLong_FromLong(rk.version());
}

/* client_of(handle, name): the address of the client in a handle of confluent_kafka, its type, and
 * the value of one of its properties. To be asked only of versions whose layout is known. */
static PyObject *client_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *handle, *value = NULL;
    const char *name;
    void *client;
    size_t size = 0;
    if (!PyArg_ParseTuple(args, "Os", &handle, &name))
        return NULL;
    memcpy(&client, (char *)handle + sizeof(PyObject), sizeof client);
    if (client && !rk.conf_get(rk.conf(client), name, NULL, &size) && size)
        value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size); /* with its end */
    if (!value || rk.conf_get(rk.conf(client), name, PyBytes_AsString(value), &size)) {
        Py_XDECREF(value);
        return PyErr_SetString(PyExc_ValueError, "the client has no such property"), NULL;
    }
    PyObject *found = Py_BuildValue("Nis", PyLong_FromVoidPtr(client), rk.type(client), PyBytes_AsString(value));
    Py_DECREF(value);
    return found;
}

#define METHOD(type, name, flags) {#name, (PyCFunction)(void (*)(void))type##_##name, flags, NULL}
#define TYPE(type, flags, ...)                                                                  \
    static PyType_Slot type##_slots[] = {                                                       \
        {Py_tp_dealloc, type##_dealloc}, {Py_tp_methods, type##_methods}, __VA_ARGS__, {0, NULL}}; \
    static PyType_Spec type##_spec = {"ringfence_native." #type, sizeof(type), 0,                 \
                                      Py_TPFLAGS_DEFAULT | (flags), type##_slots}

static PyMethodDef Table_methods[] = {
    METHOD(Table, hashed, METH_O), METHOD(Table, drop, METH_O), METHOD(Table, value, METH_O),
    METHOD(Table, numbers, METH_VARARGS), METHOD(Table, tail, METH_VARARGS),
    METHOD(Table, join, METH_VARARGS), METHOD(Table, lend, METH_VARARGS), METHOD(Table, young, METH_NOARGS),
    METHOD(Table, ids, METH_NOARGS), METHOD(Table, has, METH_O), METHOD(Table, attach, METH_VARARGS), {0}};
static PyMethodDef Run_methods[] = {METHOD(Run, map, METH_O), {0}};
static PyMethodDef Merge_methods[] = {METHOD(Merge, step, METH_O), {0}};
static PyMethodDef Draft_methods[] = {
    METHOD(Draft, find, METH_VARARGS), METHOD(Draft, add, METH_VARARGS),
    METHOD(Draft, row, METH_O),        METHOD(Draft, renew, METH_O),
    METHOD(Draft, counts, METH_NOARGS), METHOD(Draft, seal, METH_VARARGS),
    METHOD(Draft, limit, METH_VARARGS), METHOD(Draft, see, METH_VARARGS),
    METHOD(Draft, expire, METH_NOARGS), METHOD(Draft, eldest, METH_NOARGS),
    METHOD(Draft, supply, METH_O),      METHOD(Draft, unread, METH_NOARGS),
    METHOD(Draft, standing, METH_NOARGS), {0}};
static PyMethodDef Lane_methods[] = {METHOD(Lane, take, METH_NOARGS),
                                     METHOD(Lane, passed, METH_NOARGS), {0}};
static PyMethodDef Piece_methods[] = {
    METHOD(Piece, record, METH_O),        METHOD(Piece, headers, METH_O),
    METHOD(Piece, columns, METH_VARARGS), METHOD(Piece, fitting, METH_VARARGS),
    METHOD(Piece, source, METH_VARARGS),  METHOD(Piece, strip, METH_VARARGS),
    METHOD(Piece, admit, METH_VARARGS),   METHOD(Piece, forward, METH_VARARGS),
    METHOD(Piece, send, METH_VARARGS),    METHOD(Piece, beyond, METH_VARARGS),
    {0}};
static PyMethodDef Reader_methods[] = {
    METHOD(Reader, partition, METH_VARARGS), METHOD(Reader, forward, METH_O),
    METHOD(Reader, consume, METH_VARARGS), METHOD(Reader, close, METH_NOARGS), {0}};

static PyGetSetDef Table_fields[] = {{"memory_bytes", (getter)Table_bytes, NULL, NULL, NULL}, {0}};
static PyGetSetDef Run_fields[] = {{"filter_bytes", (getter)Run_filter, NULL, NULL, NULL},
                                   {"memory_bytes", (getter)Run_bytes, NULL, NULL, NULL},
                                   {"first", (getter)Run_first, NULL, NULL, NULL},
                                   {"end", (getter)Run_end, NULL, NULL, NULL},
                                   {"mark", (getter)Run_mark, NULL, NULL, NULL},
                                   {0}};
static PyGetSetDef Piece_fields[] = {{"errors", (getter)Piece_errors, NULL, NULL, NULL}, {0}};

TYPE(Table, 0, {Py_tp_new, Table_new}, {Py_tp_getset, Table_fields});
TYPE(Draft, 0, {Py_tp_new, Draft_new}, {Py_sq_length, Draft_length});
TYPE(Run, 0, {Py_tp_new, Run_new}, {Py_tp_getset, Run_fields});
TYPE(Merge, 0, {Py_tp_new, Merge_new});
TYPE(Lane, 0, {Py_tp_new, Lane_new});
TYPE(Piece, Py_TPFLAGS_DISALLOW_INSTANTIATION, {Py_tp_getset, Piece_fields},
     {Py_sq_length, Piece_length});
TYPE(Reader, 0, {Py_tp_new, Reader_new});

#ifdef FOR_TESTS
#include "for_tests.c"
#else
#define FUNCTIONS_FOR_TESTS
#endif

/* What service/ringfence_service/native/extension.py expects: one more with each change of what is called. */
enum { INTERFACE = 10 };

static PyMethodDef functions[] = {{"bind", bind, METH_VARARGS, NULL},
                                  {"client_of", client_of, METH_VARARGS, NULL},
                                  {"write_run", write_run_at, METH_VARARGS, NULL},
                                  {"joined", joined, METH_O, NULL},
                                  {"lookups", lookups_of_process, METH_NOARGS, NULL},
                                  {"names_with_ids", names_with_ids, METH_VARARGS, NULL},
                                  {"is_segment", is_segment_of, METH_O, NULL},
                                  FUNCTIONS_FOR_TESTS{0}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ringfence_native", .m_size = -1,
                                 .m_methods = functions};

PyMODINIT_FUNC PyInit_ringfence_native(void)
{
    static struct {
        PyType_Spec *spec;
        PyTypeObject **type;
    } types[] = {{&Table_spec, &TableType},
                 {&Draft_spec, &DraftType},
                 {&Run_spec, &RunType},
                 {&Merge_spec, &MergeType},
                 {&Lane_spec, &LaneType},
                 {&Piece_spec, &PieceType},
                 {&Reader_spec, &ReaderType}};
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    for (size_t i = 0; module && i < sizeof types / sizeof *types; i++) {
        *types[i].type = (PyTypeObject *)PyType_FromSpec(types[i].spec);
        if (!*types[i].type || PyModule_AddType(module, *types[i].type) < 0)
            Py_CLEAR(module);
    }
    return module;
}
