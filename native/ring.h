/* A ring in compiled form: a Table has its committed ids, a Draft those that a batch adds.
 *
 * A table finds the number of a new id in its slots, and that of an older one in its runs. What always
 * holds: a draft does not change what its table knows; a stored segment is checked as a whole before
 * it is read.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdio.h>

#include "runs.h"

static void *made(PyTypeObject *type) { return PyType_GenericAlloc(type, 0); }

static void freed(void *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static bool listed(PyObject *list, PyObject *item)
{
    bool fits = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return fits;
}

/* Text: bytes that grow. */

typedef struct {
    char *bytes;
    size_t used, room;
} Text;

static bool put(Text *text, const void *bytes, size_t length)
{
    if (length > text->room - text->used) {
        size_t room = 2 * text->room + length + 64;
        char *grown = realloc(text->bytes, room);
        if (!grown)
            return PyErr_NoMemory() != NULL;
        text->bytes = grown, text->room = room;
    }
    if (length)
        memcpy(text->bytes + text->used, bytes, length);
    text->used += length;
    return true;
}

static bool put_number(Text *text, int64_t number)
{
    char digits[24];
    return put(text, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
}

/* Slots: numbers by the hashes of ids, in an open hash table. A slot has 32 bits of the hash, the
 * tag, and the low half of the number; 0 is free. Numbers outside [floor, end) are dead. */

typedef struct {
    uint64_t *slots;
    size_t size, used;
} Slots;

enum { SLOTS_MIN = 16, FORGOTTEN_BYTES = 66, NAME_BYTES_MAX = 99 };

static uint32_t tag_of(uint64_t hash)
{
    uint32_t tag = (uint32_t)hash;
    return tag ? tag : 1;
}

static uint64_t number_in(uint64_t slot, uint64_t floor)
{
    return floor + (uint32_t)((uint32_t)slot - (uint32_t)floor);
}

static void place(uint64_t *slots, size_t size, uint64_t slot)
{
    size_t at = (size_t)(slot >> 32) & (size - 1);
    while (slots[at])
        at = (at + 1) & (size - 1);
    slots[at] = slot;
}

/* How many slots are made for so many numbers, of which at most two thirds are used then. */
static size_t size_for(size_t live)
{
    size_t size = SLOTS_MIN;
    while (size - size / 3 <= live + 1)
        size *= 2;
    return size;
}

/* The slot that has a number; NULL if none has. */
static uint64_t *slot_of(const Slots *self, uint32_t tag, uint64_t number)
{
    uint64_t wanted = (uint64_t)tag << 32 | (uint32_t)number;
    for (size_t at = tag; self->size && self->slots[at & (self->size - 1)]; at++)
        if (self->slots[at & (self->size - 1)] == wanted)
            return &self->slots[at & (self->size - 1)];
    return NULL;
}

/* Add a number above all before; when there is no room, drop what is dead, and grow if little is. */
static bool insert(Slots *self, uint32_t tag, uint64_t number, uint64_t floor)
{
    if (self->used >= self->size - self->size / 8) {
        size_t live = 0, size;
        for (size_t i = 0; i < self->size; i++)
            live += self->slots[i] && number_in(self->slots[i], floor) < number;
        size = size_for(live);
        uint64_t *slots = calloc(size, sizeof *slots);
        if (!slots)
            return PyErr_NoMemory() != NULL;
        for (size_t i = 0; i < self->size; i++)
            if (self->slots[i] && number_in(self->slots[i], floor) < number)
                place(slots, size, self->slots[i]);
        free(self->slots);
        *self = (Slots){slots, size, live};
    }
    place(self->slots, self->size, (uint64_t)tag << 32 | (uint32_t)number);
    self->used++;
    return true;
}

/* The next number with this tag in [floor, end), after so many slots that were seen; -1: none. */
static int64_t next_of(const Slots *self, uint32_t tag, uint64_t floor, uint64_t end, size_t *seen)
{
    while (self->size) {
        uint64_t slot = self->slots[(tag + *seen) & (self->size - 1)];
        if (!slot)
            break;
        ++*seen;
        if (slot >> 32 == tag && number_in(slot, floor) < end)
            return (int64_t)number_in(slot, floor);
    }
    return -1;
}

/* Segments: rows of ids with their origins, in the format of state/ringfence_state/segment.py. */

static const char HELD[] = "ids held"; /* the last source, if its partition is a window's count */

enum { SEGMENT_FORMAT = 1, SEGMENT_IDS_MAX = 512, HEAD_BYTES = 31, COLUMN_BYTES = 9 };

typedef struct {
    int64_t base;
    const unsigned char *distances;
    size_t width; /* of a distance; 0: all are equal to the base */
} Column;

typedef struct {
    PyObject *value;
    uint64_t first, floor, capacity;
    uint32_t count, sources_count;
    int64_t held; /* how many ids its window holds after it; -1 if it does not say */
    const unsigned char *sources, *ids;
    Column source_indexes, offsets, times, lengths;
} Segment;

typedef struct {
    const char *id, *topic;
    size_t length, topic_length;
    int64_t partition, offset, time;
} Entry;

typedef struct {
    const unsigned char *at;
    size_t left;
} Unread;

static const unsigned char *taken(Unread *unread, size_t count)
{
    const unsigned char *start = unread->at;
    if (count > unread->left)
        return NULL;
    unread->at += count, unread->left -= count;
    return start;
}

static uint64_t little(const unsigned char *bytes, size_t width)
{
    uint64_t number = 0;
    while (width--)
        number = number << 8 | bytes[width];
    return number;
}

static int64_t item(const Column *column, size_t row)
{
    size_t width = column->width;
    return (int64_t)((uint64_t)column->base + little(column->distances + row * width, width));
}

static bool is_column(Unread *unread, size_t count, Column *found)
{
    static const char CODES[] = "=BH.I...Q";
    const unsigned char *head = taken(unread, COLUMN_BYTES);
    const char *code = head && head[8] && head[8] != '.' ? strchr(CODES, head[8]) : NULL;
    if (!code)
        return false;
    found->base = (int64_t)little(head, 8), found->width = (size_t)(code - CODES);
    if (!(found->distances = taken(unread, count * found->width)))
        return false;
    bool may_overflow = found->width == 8 || found->base > INT64_MAX - UINT32_MAX;
    for (size_t row = 0; may_overflow && row < count; row++)
        if (little(found->distances + row * found->width, found->width) >
            (uint64_t)INT64_MAX - (uint64_t)found->base)
            return false;
    return true;
}

/* Whether bytes are a segment. Every read of `found` is within them then. */
static bool is_segment(PyObject *value, Segment *found)
{
    Unread unread = {(unsigned char *)PyBytes_AsString(value), (size_t)PyBytes_Size(value)};
    const unsigned char *head = taken(&unread, HEAD_BYTES);
    if (!head || head[0] != SEGMENT_FORMAT)
        return false;
    found->value = value, found->first = little(head + 1, 8), found->floor = little(head + 9, 8);
    found->capacity = little(head + 17, 8), found->count = (uint32_t)little(head + 25, 4);
    found->sources_count = (uint32_t)little(head + 29, 2), found->sources = unread.at;
    found->held = -1;
    for (uint32_t i = 0; i < found->sources_count; i++) {
        const unsigned char *source = taken(&unread, 6);
        size_t length = source ? (size_t)little(source, 2) : 0;
        const char *name = source ? (const char *)taken(&unread, length) : NULL;
        PyObject *text = name ? PyUnicode_DecodeUTF8(name, (Py_ssize_t)length, NULL) : NULL;
        PyErr_Clear();
        if (!text)
            return false;
        Py_DECREF(text);
        if (i + 1 == found->sources_count && length == strlen(HELD) && !memcmp(name, HELD, length))
            found->held = (int64_t)little(source + 2, 4);
    }
    if (found->held >= 0 && found->held > (int64_t)(found->first + found->count - found->floor))
        return false;
    if (!found->count)
        return !unread.left;
    if (found->count > SEGMENT_IDS_MAX || !is_column(&unread, found->count, &found->source_indexes) ||
        !is_column(&unread, found->count, &found->offsets) ||
        !is_column(&unread, found->count, &found->times) ||
        !is_column(&unread, found->count, &found->lengths))
        return false;
    found->ids = unread.at;
    if (!found->source_indexes.width && !found->lengths.width) { /* most segments: all rows are alike */
        int64_t length = found->lengths.base;
        return found->source_indexes.base >= 0 && found->source_indexes.base < found->sources_count &&
               length >= 0 && (uint64_t)length <= unread.left && length * found->count == (int64_t)unread.left;
    }
    for (uint32_t row = 0; row < found->count; row++) {
        int64_t source = item(&found->source_indexes, row), length = item(&found->lengths, row);
        if (source < 0 || source >= found->sources_count || length < 0 ||
            !taken(&unread, (size_t)length))
            return false;
    }
    return !unread.left;
}

static Entry entry_at(const Segment *segment, size_t row)
{
    const char *id = (const char *)segment->ids;
    const unsigned char *source = segment->sources;
    if (!segment->lengths.width)
        id += (int64_t)row * segment->lengths.base;
    for (size_t i = 0; segment->lengths.width && i < row; i++)
        id += item(&segment->lengths, i);
    for (int64_t i = item(&segment->source_indexes, row); i; i--)
        source += 6 + little(source, 2);
    return (Entry){.id = id,
                   .length = (size_t)item(&segment->lengths, row),
                   .topic = (const char *)source + 6,
                   .topic_length = (size_t)little(source, 2),
                   .partition = (int64_t)little(source + 2, 4),
                   .offset = item(&segment->offsets, row),
                   .time = item(&segment->times, row)};
}

/* A Table has the committed numbers of one ring. Those of the ids in segments that it was given are in
 * its slots; older ones are in its runs, which Python attaches. It keeps the segments too, if it is not
 * whole only the newest ones: most duplicates come soon. */

enum { RECENT_SEGMENTS = 64, LENT_SEGMENTS = 64 };

/* Segments, by their first numbers. */
typedef struct {
    Segment *items;
    size_t start, end, room, bytes;
} Segments;

typedef struct {
    PyObject_HEAD
    Slots slots;
    Segments segments, lent; /* lent ones are older: Python has read them for duplicates */
    Seed seed;
    uint64_t floor;
    int is_whole, has_runs, is_window;
    PyObject *runs; /* tuple of Run, oldest first; NULL before the first */
    RunFile **files; /* of these */
    size_t files_count;
    uint64_t young; /* the numbers below are in runs, or evicted; they are not in the slots */
    Text ids;       /* of the numbers from `young` on: Hashed, if the table has runs */
} Table;

typedef struct {
    PyObject_HEAD
    RunFile file;
} Run;

static PyTypeObject *TableType, *DraftType, *RunType;

static bool is_seed(PyObject *bytes, Seed *seed)
{
    if (PyBytes_Check(bytes) && PyBytes_Size(bytes) == sizeof *seed) {
        memcpy(seed, PyBytes_AsString(bytes), sizeof *seed);
        return true;
    }
    PyErr_SetString(PyExc_ValueError, "a seed has 16 bytes");
    return false;
}

/* Table(is_whole, has_runs, is_window, seed) */
static PyObject *Table_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    int is_whole, has_runs, is_window;
    PyObject *bytes;
    Seed seed;
    if (!PyArg_ParseTuple(args, "pppO", &is_whole, &has_runs, &is_window, &bytes) ||
        !is_seed(bytes, &seed))
        return NULL;
    Table *self = made(type);
    if (self) {
        self->is_whole = is_whole, self->has_runs = has_runs, self->is_window = is_window;
        self->seed = seed;
    }
    return (PyObject *)self;
}

static void drop(Segments *self, size_t count)
{
    for (; count && self->start < self->end; count--) {
        PyObject *value = self->items[self->start++].value;
        self->bytes -= (size_t)PyBytes_Size(value);
        Py_DECREF(value);
    }
}

static void Table_dealloc(Table *self)
{
    drop(&self->segments, SIZE_MAX), drop(&self->lent, SIZE_MAX);
    free(self->segments.items), free(self->lent.items);
    free(self->slots.slots), free(self->ids.bytes), free(self->files);
    Py_XDECREF(self->runs);
    freed(self);
}

/* How many of them begin at a number or before. */
static size_t until(const Segments *self, uint64_t number)
{
    size_t low = self->start, high = self->end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->items[middle].first <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool keep(Segments *self, const Segment *segment)
{
    if (self->end == self->room && self->start >= self->room / 2) {
        self->end -= self->start;
        if (self->end)
            memmove(self->items, self->items + self->start, self->end * sizeof *segment);
        self->start = 0;
    }
    if (self->end == self->room) {
        size_t room = self->room + self->room / 2 + 1; /* most rings have few */
        Segment *items = realloc(self->items, room * sizeof *items);
        if (!items)
            return PyErr_NoMemory() != NULL;
        self->items = items, self->room = room;
    }
    size_t at = until(self, segment->first);
    memmove(self->items + at + 1, self->items + at, (self->end++ - at) * sizeof *segment);
    self->items[at] = *segment;
    Py_INCREF(segment->value);
    self->bytes += (size_t)PyBytes_Size(segment->value);
    return true;
}

static bool is_readable(PyObject *value, Segment *segment)
{
    if (!PyBytes_Check(value) || !is_segment(value, segment))
        return PyErr_SetString(PyExc_ValueError, "no segment"), false;
    if (segment->first >> 62 || segment->floor >> 62)
        return PyErr_SetString(PyExc_OverflowError, "a number of 2^62 or more"), false;
    return true;
}

/* The hash of the id of a row, which begins at `id`; 0 if it is forgotten, which no id of a window is. */
static uint64_t hash_in(const Table *self, const Segment *segment, uint32_t row, const char *id)
{
    size_t length = (size_t)item(&segment->lengths, row);
    return length == FORGOTTEN_BYTES && !self->is_window ? 0 : hash_of(self->seed, id, length);
}

static uint64_t max_of(uint64_t one, uint64_t other) { return one > other ? one : other; }

static uint64_t young_count(const Table *self) { return self->ids.used / sizeof(Hashed); }

/* Leave the numbers below `young` to the runs. */
static void leave(Table *self, uint64_t young)
{
    size_t known = young > self->young ? young - self->young : 0;
    known = known < young_count(self) ? known * sizeof(Hashed) : self->ids.used;
    self->ids.used -= known;
    if (known)
        memmove(self->ids.bytes, self->ids.bytes + known, self->ids.used);
    self->young = max_of(young, self->young);
}

/* Leave evicted numbers, when they are most of the young ones. */
static void trim(Table *self)
{
    if (self->floor > self->young && self->floor - self->young > young_count(self) / 2)
        leave(self, self->floor);
}

static const Segment *kept_with(const Segments *self, uint64_t number)
{
    size_t after = until(self, number);
    const Segment *found = after > self->start ? &self->items[after - 1] : NULL;
    return found && number - found->first < found->count ? found : NULL;
}

/* The segment that has a number; NULL if none is kept. */
static const Segment *segment_with(const Table *self, uint64_t number)
{
    const Segment *found = kept_with(&self->segments, number);
    return found ? found : kept_with(&self->lent, number);
}

static bool has_id(const Segment *segment, uint64_t number, const char *id, size_t length, Entry *entry)
{
    *entry = entry_at(segment, (size_t)(number - segment->first));
    return entry->length == length && (!length || !memcmp(entry->id, id, length));
}

/* An id of a window that is seen again takes over its slot, if the segment with its older number is
 * kept; else it has two slots, and the newer number counts. */
static bool takes_over(Table *self, uint32_t tag, const char *id, size_t length, uint64_t number)
{
    uint64_t young = max_of(self->floor, self->young), older;
    Hashed *ids = (Hashed *)(void *)self->ids.bytes;
    Entry entry;
    size_t seen = 0;
    int64_t found;
    while ((found = next_of(&self->slots, tag, young, number, &seen)) >= 0) {
        const Segment *segment = segment_with(self, older = (uint64_t)found);
        if (!segment || !has_id(segment, older, id, length, &entry))
            continue;
        self->slots.slots[(tag + seen - 1) & (self->slots.size - 1)] = (uint64_t)tag << 32 | (uint32_t)number;
        if (self->has_runs)
            ids[older - self->young].hash = 0;
        return true;
    }
    return false;
}

/* Add the next segment; the ids of its first `known` rows were added before. Return its first number,
 * floor, capacity and number of ids, and how many ids its window holds, or -1. */
static PyObject *taken_over(Table *self, PyObject *value, uint32_t known)
{
    Segment segment;
    if (!is_readable(value, &segment) || (segment.count && !keep(&self->segments, &segment)))
        return NULL;
    const char *id = (const char *)segment.ids;
    self->floor = max_of(self->floor, segment.floor);
    /* Numbers are skipped by a batch longer than the ring: those before are evicted. */
    if (self->has_runs && segment.count && segment.first + known != self->young + young_count(self))
        self->young = segment.first + known, self->ids.used = 0;
    for (uint32_t row = 0; row < segment.count; row++) {
        size_t length = (size_t)item(&segment.lengths, row);
        uint64_t number = segment.first + row;
        Hashed hashed = {row < known ? 0 : hash_in(self, &segment, row, id), row, 0};
        if (row >= known && self->has_runs && !put(&self->ids, &hashed, sizeof hashed))
            return NULL;
        if (hashed.hash && !(self->is_window && takes_over(self, tag_of(hashed.hash), id, length, number)) &&
            !insert(&self->slots, tag_of(hashed.hash), number, max_of(self->floor, self->young)))
            return NULL;
        id += length;
    }
    if (self->has_runs)
        trim(self);
    if (!self->is_whole && self->segments.end - self->segments.start > RECENT_SEGMENTS)
        drop(&self->segments, 1);
    return Py_BuildValue("KKKIL", segment.first, segment.floor, segment.capacity, segment.count,
                         (long long)segment.held);
}

/* tail(ids_max, floor, total_max): the newest segments that are kept, oldest first, as long as each has
 * fewer ids, they have so many together at most, none of them begins below the floor, and their numbers
 * are consecutive. */
static PyObject *Table_tail(Table *self, PyObject *args)
{
    Py_ssize_t ids_max, left;
    unsigned long long floor;
    if (!PyArg_ParseTuple(args, "nKn", &ids_max, &floor, &left))
        return NULL;
    const Segments *kept = &self->segments;
    size_t start = kept->end;
    for (; start > kept->start; start--) {
        const Segment *segment = &kept->items[start - 1];
        left -= segment->count;
        if (left < 0 || segment->count >= (size_t)ids_max || segment->first < floor ||
            (start < kept->end && segment->first + segment->count != segment[1].first))
            break;
    }
    PyObject *found = PyList_New(0);
    for (size_t i = start; found && i < kept->end; i++)
        if (!listed(found, Py_BuildValue("KIO", kept->items[i].first, kept->items[i].count,
                                         kept->items[i].value)))
            Py_CLEAR(found);
    return found;
}

/* join(count, value): put a segment, which goes on with new ids, in place of the newest ones. */
static PyObject *Table_join(Table *self, PyObject *args)
{
    Py_ssize_t count;
    PyObject *value;
    uint32_t known = 0;
    Segments *kept = &self->segments;
    if (!PyArg_ParseTuple(args, "nO", &count, &value))
        return NULL;
    if (count < 0 || (size_t)count > kept->end - kept->start)
        return PyErr_SetString(PyExc_ValueError, "so many segments are not kept"), NULL;
    for (; count; count--) {
        const Segment *last = &kept->items[--kept->end];
        known += last->count, kept->bytes -= (size_t)PyBytes_Size(last->value);
        Py_DECREF(last->value);
    }
    return taken_over(self, value, known);
}

/* lend(value, number): keep a segment that holds older ids until the next batch, so that their duplicates
 * are decided here; false if it has not got this number. The memory that is counted does not include it. */
static PyObject *Table_lend(Table *self, PyObject *args)
{
    Segment segment;
    PyObject *value;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "OK", &value, &number) || !is_readable(value, &segment))
        return NULL;
    if (number < segment.first || number - segment.first >= segment.count)
        Py_RETURN_FALSE;
    if (self->lent.end - self->lent.start >= LENT_SEGMENTS)
        drop(&self->lent, SIZE_MAX);
    return keep(&self->lent, &segment) ? Py_NewRef(Py_True) : NULL;
}

/* is_segment(value): whether it is a segment that can be read. */
static PyObject *is_segment_of(PyObject *Py_UNUSED(module), PyObject *value)
{
    Segment segment;
    bool is_good = is_readable(value, &segment);
    PyErr_Clear();
    return PyBool_FromLong(is_good);
}

/* hashed(value): the ids of a segment, 16 bytes each, for a run. */
static PyObject *Table_hashed(Table *self, PyObject *value)
{
    Segment segment;
    if (!is_readable(value, &segment))
        return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(segment.count * sizeof(Hashed)));
    const char *id = (const char *)segment.ids;
    for (uint32_t row = 0; found && row < segment.count; row++) {
        Hashed hashed = {hash_in(self, &segment, row, id), row, 0};
        memcpy(PyBytes_AsString(found) + row * sizeof hashed, &hashed, sizeof hashed);
        id += item(&segment.lengths, row);
    }
    return found;
}

/* young(): the numbers in the slots: the first one, and the one after the last. */
static PyObject *Table_young(Table *self, PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("KK", self->young, self->young + young_count(self));
}

/* ids(): the ids of the numbers in the slots, 16 bytes each, for a run. */
static PyObject *Table_ids(Table *self, PyObject *Py_UNUSED(none))
{
    return PyBytes_FromStringAndSize(self->ids.bytes, (Py_ssize_t)self->ids.used);
}

/* The files of a tuple of runs, which keeps them open. */
static RunFile **files_of(PyObject *runs, size_t *count)
{
    *count = (size_t)PyTuple_Size(runs);
    RunFile **files = malloc((*count + 1) * sizeof *files);
    if (!files)
        return PyErr_NoMemory(), NULL;
    for (size_t i = 0; i < *count; i++) {
        PyObject *run = PyTuple_GetItem(runs, (Py_ssize_t)i);
        if (!PyObject_TypeCheck(run, RunType)) {
            free(files);
            return PyErr_SetString(PyExc_TypeError, "no run"), NULL;
        }
        files[i] = &((Run *)run)->file;
    }
    return files;
}

/* attach(runs, young): have these runs, oldest first, and leave the numbers below `young` to them. */
static PyObject *Table_attach(Table *self, PyObject *args)
{
    PyObject *runs;
    unsigned long long young;
    if (!PyArg_ParseTuple(args, "O!K", &PyTuple_Type, &runs, &young))
        return NULL;
    size_t count;
    RunFile **files = files_of(runs, &count);
    if (!files)
        return NULL;
    leave(self, young);
    free(self->files), self->files = files, self->files_count = count;
    Py_XDECREF(self->runs);
    self->runs = Py_NewRef(runs);
    Py_RETURN_NONE;
}

/* drop(count): drop the oldest segments that are kept, and those that were lent. */
static PyObject *Table_drop(Table *self, PyObject *count)
{
    size_t number = PyLong_AsSize_t(count);
    if (PyErr_Occurred())
        return NULL;
    drop(&self->segments, number), drop(&self->lent, SIZE_MAX);
    Py_RETURN_NONE;
}

/* has(number): whether the segment that has it is kept. */
static PyObject *Table_has(Table *self, PyObject *number)
{
    unsigned long long wanted = PyLong_AsUnsignedLongLong(number);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(segment_with(self, wanted) != NULL);
}

/* value(number): the segment that has it, if it is kept. */
static PyObject *Table_value(Table *self, PyObject *number)
{
    unsigned long long wanted = PyLong_AsUnsignedLongLong(number);
    const Segment *found = PyErr_Occurred() ? NULL : segment_with(self, wanted);
    if (!found && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, number);
    return found ? Py_NewRef(found->value) : NULL;
}

/* Of ids in tables with runs, of this process: how many were looked for, and for how many of them a file
 * was read. */
static uint64_t lookups, lookups_in_files;

/* A search for the numbers of an id, in the slots and then in each run, the newest one first. */
typedef struct {
    const Table *table;
    uint64_t hash, bits, floor, end;
    uint64_t own;     /* a number of the id: the run that has it is not searched unless it is marked */
    size_t seen;      /* of the slots */
    size_t left;      /* runs, the last of which comes next */
    bool is_in_run, is_damaged, has_read;
    Cursor cursor;
} Search;

static void begin_search(Search *self, const Table *table, uint64_t hash, uint64_t floor, uint64_t end)
{
    self->table = table, self->hash = hash, self->floor = floor, self->end = end, self->seen = 0;
    self->own = UINT64_MAX;
    self->is_in_run = self->is_damaged = self->has_read = false;
    lookups += table->has_runs;
    self->bits = bits_of(hash >> 16);
    for (self->left = 0; self->left < table->files_count; self->left++)
        fetch_block(table->files[self->left], hash >> 16);
}

static void note_read(Search *self)
{
    lookups_in_files += !self->has_read;
    self->has_read = true;
}

/* The next number; -1: no more, which proves nothing if `is_damaged`. */
static int64_t next_found(Search *self)
{
    uint64_t young = max_of(self->floor, self->table->young);
    int64_t number = next_of(&self->table->slots, tag_of(self->hash), young, self->end, &self->seen);
    while (number < 0 && self->left) {
        RunFile *run = self->table->files[self->left - 1];
        if (!self->is_in_run) {
            bool is_own = run->head.first <= self->own && self->own < run->head.end &&
                          !is_marked(run, self->own);
            int answer = run->head.end <= self->floor || is_own ? 0 : may_have(run, self->hash >> 16, self->bits);
            if (answer || !run->mapped)
                note_read(self);
            self->is_damaged = self->is_damaged || answer < 0;
            self->is_in_run = answer > 0, self->cursor.is_read = false;
        }
        int64_t found = self->is_in_run ? next_number(run, self->hash >> 16, &self->cursor) : -1;
        self->is_damaged = self->is_damaged || found == -2;
        if (found < 0)
            self->left--, self->is_in_run = false;
        else if ((uint64_t)found >= self->floor && (uint64_t)found < self->end)
            number = found;
    }
    return number;
}

/* Where the segment with the number that was found begins, unless it was rewritten since. */
static uint64_t first_of_found(const Search *self, uint64_t number)
{
    if (self->is_in_run)
        return number - self->cursor.distance;
    const Hashed *ids = (const Hashed *)(const void *)self->table->ids.bytes;
    uint64_t row = number - self->table->young;
    return row < young_count(self->table) ? number - ids[row].distance : number;
}

/* numbers(id, floor, end): the numbers in this range that may be the id's, newest first, each with the
 * first number of its segment, unless that was rewritten. */
static PyObject *Table_numbers(Table *self, PyObject *args)
{
    const char *id;
    Py_ssize_t length;
    PyObject *found = PyList_New(0);
    unsigned long long floor, end;
    int64_t number;
    Search search;
    if (!found || !PyArg_ParseTuple(args, "y#KK", &id, &length, &floor, &end))
        return Py_XDECREF(found), NULL;
    begin_search(&search, self, hash_of(self->seed, id, (size_t)length), floor, end);
    while ((number = next_found(&search)) >= 0)
        if (!listed(found, Py_BuildValue("LK", (long long)number,
                                         first_of_found(&search, (uint64_t)number))))
            return Py_DECREF(found), NULL;
    if (search.is_damaged)
        PyErr_SetString(PyExc_ValueError, "a run is damaged");
    if (search.is_damaged || PyList_Sort(found) < 0 || PyList_Reverse(found) < 0)
        return Py_DECREF(found), NULL;
    return found;
}

static PyObject *Table_bytes(Table *self, void *Py_UNUSED(what))
{
    size_t bytes = self->slots.size * sizeof *self->slots.slots + self->ids.room;
    bytes += self->segments.bytes + self->segments.room * sizeof(Segment);
    return PyLong_FromSize_t(bytes);
}

/* A Draft has the rows that a batch adds to a ring, or to a window, which window.h completes. */

typedef struct {
    int64_t offset, time;
    size_t start; /* of the id */
    uint32_t length, source;
    bool is_gone;      /* in a ring it was made new since; in a window it was seen again, or evicted */
    bool is_refreshed; /* a duplicate was seen, nothing was accepted */
} Added;

/* What a window has beyond a ring. */
typedef struct {
    int64_t lasts_ms, newest_ms; /* how long an id is held; when the draft accepted one last */
    int64_t lost_ms;             /* when the newest of those forgotten was seen; -1: none was forgotten */
    uint64_t size, held, superseded; /* committed numbers above the floor that are not an id's last */
    int refreshes, has_all;          /* no stored segment has numbers above the floor but `oldest` */
    Segment oldest;                  /* the segment at the floor; without a value if Python has to read it */
    uint32_t row;                    /* of it, the first that was not evicted */
    const char *id;                  /* of this row */
    size_t first_row;                /* the rows before are gone */
} Window;

typedef struct {
    PyObject_HEAD
    Slots slots; /* of rows */
    Table *table;
    PyObject *sources; /* list of (topic, partition), which Python appends to */
    Added *rows;
    Text ids;
    size_t count, room;
    uint64_t next, floor, capacity; /* `next` is the number of the first row */
    uint64_t serial;                /* no other draft of the process has it */
    bool has_renewed;               /* a committed id is to be treated as new */
    Window window;                  /* if the table is that of a window */
} Draft;

/* Draft(table, sources, next, floor, capacity) */
static PyObject *Draft_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *table, *sources;
    unsigned long long next, floor, capacity;
    if (!PyArg_ParseTuple(args, "O!O!KKK", TableType, &table, &PyList_Type, &sources, &next, &floor,
                          &capacity))
        return NULL;
    Draft *self = made(type);
    if (!self)
        return NULL;
    self->table = (Table *)Py_NewRef(table), self->sources = Py_NewRef(sources);
    static uint64_t drafts;
    self->next = next, self->floor = floor, self->capacity = capacity, self->serial = ++drafts;
    return (PyObject *)self;
}

static void Draft_dealloc(Draft *self)
{
    Py_DECREF((PyObject *)self->table), Py_DECREF(self->sources);
    Py_XDECREF(self->window.oldest.value);
    free(self->rows), free(self->ids.bytes), free(self->slots.slots);
    freed(self);
}

static Py_ssize_t Draft_length(Draft *self) { return (Py_ssize_t)self->count; }

/* The lowest number that is held; a full ring forgets its oldest id, rows included. Those that a window
 * forgets are marked. */
static uint64_t least_of(const Draft *self)
{
    uint64_t end = self->next + self->count;
    uint64_t least = end > self->capacity && !self->table->is_window ? end - self->capacity : 0;
    return least > self->floor ? least : self->floor;
}

/* The row of an id that is held, -1 if it has none. */
static int64_t row_of(const Draft *self, const char *id, size_t length, uint32_t tag)
{
    size_t seen = 0;
    int64_t row;
    uint64_t least = least_of(self);
    least = least > self->next ? least - self->next : 0;
    while ((row = next_of(&self->slots, tag, least, self->count, &seen)) >= 0) {
        const Added *at = &self->rows[row];
        if (!at->is_gone && at->length == length &&
            (!length || !memcmp(self->ids.bytes + at->start, id, length)))
            break;
    }
    return row;
}

/* Add a row, which takes over the slot of an older one of the same id; -1: there is none. */
static bool added(Draft *self, const char *id, size_t length, uint32_t tag, Added row, int64_t older)
{
    if (self->count == self->room) {
        size_t room = 2 * self->room + 64;
        Added *rows = realloc(self->rows, room * sizeof *rows);
        if (!rows)
            return PyErr_NoMemory() != NULL;
        self->rows = rows, self->room = room;
    }
    uint64_t *slot = older < 0 ? NULL : slot_of(&self->slots, tag, (uint64_t)older);
    row.start = self->ids.used, row.length = (uint32_t)length;
    if (!put(&self->ids, id, length) || (!slot && !insert(&self->slots, tag, self->count, 0)))
        return false;
    if (slot)
        *slot = (uint64_t)tag << 32 | (uint32_t)self->count;
    self->rows[self->count++] = row;
    return true;
}

static bool is_row(const Draft *self, Py_ssize_t row)
{
    if (row >= 0 && (size_t)row < self->count)
        return true;
    PyErr_SetString(PyExc_IndexError, "the draft has no such row");
    return false;
}

/* find(id): the row of an id that is held, or None. */
static PyObject *Draft_find(Draft *self, PyObject *args)
{
    const char *id;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y#", &id, &length))
        return NULL;
    uint64_t hash = hash_of(self->table->seed, id, (size_t)length);
    int64_t row = row_of(self, id, (size_t)length, tag_of(hash));
    return row < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(row);
}

static bool is_source(const Draft *self, Py_ssize_t source, Py_ssize_t length, Py_ssize_t length_max)
{
    if (source >= 0 && source < PyList_Size(self->sources) && length <= length_max)
        return true;
    PyErr_SetString(PyExc_ValueError, "no source, or a long id");
    return false;
}

/* add(id, source, offset, time): an id in stored form; the source is an index. */
static PyObject *Draft_add(Draft *self, PyObject *args)
{
    const char *id;
    Py_ssize_t length, source;
    long long offset, time;
    if (!PyArg_ParseTuple(args, "y#nLL", &id, &length, &source, &offset, &time) ||
        !is_source(self, source, length, FORGOTTEN_BYTES - 1))
        return NULL;
    Added row = {.offset = offset, .time = time, .source = (uint32_t)source};
    uint32_t tag = tag_of(hash_of(self->table->seed, id, (size_t)length));
    return added(self, id, (size_t)length, tag, row, -1) ? Py_NewRef(Py_None) : NULL;
}

/* row(row): source, offset and time. */
static PyObject *Draft_row(Draft *self, PyObject *index)
{
    Py_ssize_t at = PyLong_AsSsize_t(index);
    if (PyErr_Occurred() || !is_row(self, at))
        return NULL;
    const Added *row = &self->rows[at];
    return Py_BuildValue("ILL", row->source, (long long)row->offset, (long long)row->time);
}

/* renew(row): treat the id of a row as new; one before the first row is of a committed id. */
static PyObject *Draft_renew(Draft *self, PyObject *index)
{
    Py_ssize_t at = PyLong_AsSsize_t(index);
    if (PyErr_Occurred() || (at >= 0 && !is_row(self, at)))
        return NULL;
    if (at < 0)
        self->has_renewed = true;
    else
        self->rows[at].is_gone = true;
    Py_RETURN_NONE;
}

/* counts(): how many rows of accepted records each source has. */
static PyObject *Draft_counts(Draft *self, PyObject *Py_UNUSED(none))
{
    Py_ssize_t size = PyList_Size(self->sources);
    size_t *counts = calloc((size_t)size + 1, sizeof *counts);
    PyObject *found = counts ? PyList_New(0) : PyErr_NoMemory();
    for (size_t row = 0; found && row < self->count; row++)
        counts[self->rows[row].source] += !self->rows[row].is_refreshed;
    for (Py_ssize_t i = 0; found && i < size; i++)
        if (!listed(found, PyLong_FromSize_t(counts[i])))
            Py_CLEAR(found);
    free(counts);
    return found;
}

static void put_little(Text *text, uint64_t number, size_t width)
{
    for (; width--; number >>= 8)
        put(text, &(char){(char)(number & 0xFF)}, 1);
}

static void put_column(Text *text, const int64_t *column, size_t count)
{
    int64_t low = column[0], high = column[0];
    for (size_t i = 1; i < count; i++) {
        low = column[i] < low ? column[i] : low;
        high = column[i] > high ? column[i] : high;
    }
    uint64_t range = (uint64_t)high - (uint64_t)low;
    size_t width = range >> 32 ? 8 : range >> 16 ? 4 : range >> 8 ? 2 : range ? 1 : 0;
    put_little(text, (uint64_t)low, 8);
    put(text, &"=BH.I...Q"[width], 1);
    for (size_t i = 0; width && i < count; i++)
        put_little(text, (uint64_t)column[i] - (uint64_t)low, width);
}

/* The numbers in the head of a segment; `held` is -1 if it does not say. */
typedef struct {
    uint64_t first, floor, capacity;
    int64_t held;
} Bounds;

/* The segment of so many rows, at most SEGMENT_IDS_MAX. */
static PyObject *segment_from(const Draft *self, const Added *const *rows, size_t count, Bounds bounds)
{
    static const char FORGOTTEN[FORGOTTEN_BYTES];
    size_t used = 0;
    int64_t ranks[SEGMENT_IDS_MAX], offsets[SEGMENT_IDS_MAX], times[SEGMENT_IDS_MAX],
        lengths[SEGMENT_IDS_MAX];
    uint32_t sources[SEGMENT_IDS_MAX];
    for (size_t row = 0, rank = 0; row < count; row++) {
        if (!used || sources[rank] != rows[row]->source)
            for (rank = 0; rank < used && sources[rank] != rows[row]->source;)
                rank++;
        if (rank == used)
            sources[used++] = rows[row]->source;
        ranks[row] = (int64_t)rank, offsets[row] = rows[row]->offset, times[row] = rows[row]->time;
        lengths[row] = rows[row]->is_gone ? FORGOTTEN_BYTES : rows[row]->length;
    }
    Text text = {NULL, 0, 0};
    put_little(&text, SEGMENT_FORMAT, 1), put_little(&text, bounds.first, 8);
    put_little(&text, bounds.floor, 8), put_little(&text, bounds.capacity, 8);
    put_little(&text, count, 4), put_little(&text, used + (bounds.held >= 0), 2);
    for (size_t i = 0; i < used && !PyErr_Occurred(); i++) {
        const char *topic;
        Py_ssize_t length;
        long long partition;
        if (PyArg_ParseTuple(PyList_GetItem(self->sources, sources[i]), "s#L", &topic, &length,
                             &partition)) {
            put_little(&text, (uint64_t)length, 2), put_little(&text, (uint64_t)partition, 4);
            put(&text, topic, (size_t)length);
        }
    }
    if (bounds.held >= 0)
        put_little(&text, strlen(HELD), 2), put_little(&text, (uint64_t)bounds.held, 4),
            put(&text, HELD, strlen(HELD));
    if (count) {
        put_column(&text, ranks, count), put_column(&text, offsets, count);
        put_column(&text, times, count), put_column(&text, lengths, count);
    }
    for (size_t row = 0; row < count; row++)
        put(&text, rows[row]->is_gone ? FORGOTTEN : self->ids.bytes + rows[row]->start,
            (size_t)lengths[row]);
    PyObject *value = NULL;
    if (!PyErr_Occurred())
        value = PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.used);
    free(text.bytes);
    return value;
}

static bool sealed(const Draft *self, const Added *const *rows, size_t count, Bounds bounds,
                   PyObject *found)
{
    PyObject *value = segment_from(self, rows, count, bounds);
    return value && listed(found, Py_BuildValue("KN", bounds.first, value));
}

/* seal(ids_max, is_resized, capacity): the segments to write, each with its first number. */
static PyObject *Draft_seal(Draft *self, PyObject *args)
{
    Py_ssize_t ids_max;
    int is_resized;
    unsigned long long capacity;
    if (!PyArg_ParseTuple(args, "npK", &ids_max, &is_resized, &capacity))
        return NULL;
    if (ids_max < 1 || ids_max > SEGMENT_IDS_MAX)
        return PyErr_SetString(PyExc_ValueError, "too many ids"), NULL;
    PyObject *found = PyList_New(0);
    const Added *rows[SEGMENT_IDS_MAX];
    bool is_window = self->table->is_window;
    Bounds bounds = {self->next, least_of(self), capacity, -1};
    size_t count = 0, left = 0;
    for (size_t at = 0; at < self->count; at++)
        left += !(is_window && self->rows[at].is_gone);
    for (size_t at = 0; found && at <= self->count; at++) {
        if (at < self->count && !(is_window && self->rows[at].is_gone))
            rows[count++] = &self->rows[at];
        if (count < (size_t)ids_max && (at < self->count || !count))
            continue;
        left -= count;
        bounds.held = is_window && !left ? (int64_t)self->window.held : -1;
        if (bounds.first + count > bounds.floor && !sealed(self, rows, count, bounds, found))
            Py_CLEAR(found);
        bounds.first += count, count = 0;
    }
    /* A resize alone: an empty segment has the floor; the next segment takes its key. */
    bounds.held = is_window ? (int64_t)self->window.held : -1;
    if (found && !PyList_Size(found) && is_resized && !sealed(self, rows, 0, bounds, found))
        Py_CLEAR(found);
    return found;
}

/* The index of a source in a list, to which it is added if need be; -1: an error. */
static Py_ssize_t index_of(PyObject *sources, const Entry *entry)
{
    PyObject *source = Py_BuildValue("s#L", entry->topic, (Py_ssize_t)entry->topic_length,
                                     (long long)entry->partition);
    Py_ssize_t size = PyList_Size(sources), index = -1;
    int is_same = 0;
    for (Py_ssize_t i = 0; source && !is_same && i < size; i++)
        if ((is_same = PyObject_RichCompareBool(PyList_GetItem(sources, i), source, Py_EQ)) > 0)
            index = i;
    PyObject *kind = size ? (PyObject *)Py_TYPE(PyList_GetItem(sources, 0)) : NULL, *added = source;
    if (source && !is_same && kind && kind != (PyObject *)&PyTuple_Type) /* Python reads its fields by name */
        added = PyObject_CallObject(kind, source);
    else
        Py_XINCREF(added);
    if (added && !is_same && PyList_Append(sources, added) == 0)
        index = size;
    Py_XDECREF(source), Py_XDECREF(added);
    return index;
}

/* joined(values): one segment in place of several with consecutive numbers, oldest first, which have at
 * most SEGMENT_IDS_MAX ids. */
static PyObject *joined(PyObject *Py_UNUSED(module), PyObject *values)
{
    Segment segment = {0};
    PyObject *value = NULL;
    Draft all = {.sources = PyList_New(0)};
    Added rows[SEGMENT_IDS_MAX];
    const Added *each[SEGMENT_IDS_MAX];
    bool fits = all.sources && PyList_Check(values) && PyList_Size(values);
    for (Py_ssize_t i = 0; fits && i < PyList_Size(values); i++) {
        if (!(fits = is_readable(PyList_GetItem(values, i), &segment)))
            break;
        if (!i)
            all.next = segment.first;
        fits = segment.first == all.next + all.count && all.count + segment.count <= SEGMENT_IDS_MAX;
        const char *id = (const char *)segment.ids;
        for (uint32_t row = 0; fits && row < segment.count; row++) {
            const unsigned char *source = segment.sources;
            for (int64_t at = item(&segment.source_indexes, row); at; at--)
                source += 6 + little(source, 2);
            Entry entry = {.topic = (const char *)source + 6, .topic_length = little(source, 2),
                           .partition = (int64_t)little(source + 2, 4)};
            Py_ssize_t index = index_of(all.sources, &entry);
            size_t length = (size_t)item(&segment.lengths, row);
            rows[all.count] = (Added){.offset = item(&segment.offsets, row),
                                      .time = item(&segment.times, row),
                                      .start = all.ids.used,
                                      .length = (uint32_t)length,
                                      .source = (uint32_t)index};
            each[all.count] = &rows[all.count], all.count++;
            fits = index >= 0 && put(&all.ids, id, length);
            id += length;
        }
    }
    if (fits)
        value = segment_from(&all, each, all.count,
                             (Bounds){all.next, segment.floor, segment.capacity, segment.held});
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "no segments that can be joined");
    Py_XDECREF(all.sources);
    free(all.ids.bytes);
    return value;
}
