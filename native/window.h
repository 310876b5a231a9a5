/* A window in compiled form: a ring whose ids also expire, and may be seen again.
 *
 * Each time an id is seen it gets a number, and its last one counts. Which of the oldest numbers are the
 * last of their ids is asked when the window is full, or when they are old: the draft has the segment at
 * its floor, which Python reads. What always holds: `held` is the number of ids whose last number is not
 * below the floor, those of the draft included.
 */
#include "ring.h"

/* limit(size, lasts_ms, refreshes, held, lost_ms): the draft is of a window. */
static PyObject *Draft_limit(Draft *self, PyObject *args)
{
    unsigned long long size, held;
    long long lasts_ms, lost_ms;
    int refreshes;
    if (!PyArg_ParseTuple(args, "KLpKL", &size, &lasts_ms, &refreshes, &held, &lost_ms))
        return NULL;
    if (!self->table->is_window || held > self->next - self->floor)
        return PyErr_SetString(PyExc_ValueError, "no such window"), NULL;
    self->window = (Window){.size = size, .lasts_ms = lasts_ms, .refreshes = refreshes, .held = held,
                            .lost_ms = lost_ms, .newest_ms = INT64_MIN,
                            .superseded = self->next - self->floor - held};
    Py_RETURN_NONE;
}

static bool is_old(int64_t seen, int64_t now, int64_t lasts_ms)
{
    return now > seen && (uint64_t)now - (uint64_t)seen > (uint64_t)lasts_ms;
}

static int64_t max_time(int64_t one, int64_t other) { return one > other ? one : other; }

enum { DEAD, LIVE, UNREAD };

/* Whether a committed number is the last one of its id; UNREAD if Python has to read a segment. */
static int is_last(const Draft *self, uint64_t number, const char *id, size_t length)
{
    uint64_t hash = hash_of(self->table->seed, id, length);
    Search search;
    Entry entry;
    int64_t found;
    bool is_read = true;
    if (row_of(self, id, length, tag_of(hash)) >= 0)
        return DEAD;
    if (!self->window.superseded)
        return LIVE;
    begin_search(&search, self->table, hash, number + 1, self->next);
    search.own = number;
    while ((found = next_found(&search)) >= 0) {
        const Segment *segment = segment_with(self->table, (uint64_t)found);
        if (segment && has_id(segment, (uint64_t)found, id, length, &entry))
            return DEAD;
        is_read = is_read && segment;
    }
    return is_read && !search.is_damaged ? LIVE : UNREAD;
}

/* Have the processor fetch what the search for the next of the oldest ids reads. */
static void fetch_next(const Draft *self)
{
    enum { AT_ONCE = 16 };
    const Window *window = &self->window;
    const Table *table = self->table;
    if (!window->superseded || window->row % AT_ONCE)
        return;
    const char *id = window->id;
    for (uint32_t row = window->row; row < window->oldest.count && row < window->row + AT_ONCE; row++) {
        size_t length = (size_t)item(&window->oldest.lengths, row);
        uint64_t hash = hash_of(table->seed, id, length);
        for (size_t run = 0; run < table->files_count; run++)
            fetch_block(table->files[run], hash >> 16);
        if (table->slots.size)
            __builtin_prefetch(&table->slots.slots[tag_of(hash) & (table->slots.size - 1)]);
        id += length;
    }
}

/* Raise the floor to the eldest id that is held, and tell when it was seen; false if Python has to
 * supply a segment first, or if none is held. */
static bool is_eldest(Draft *self, int64_t *time)
{
    Window *window = &self->window;
    for (; window->oldest.value && window->row < window->oldest.count; window->row++) {
        uint64_t number = window->oldest.first + window->row;
        size_t length = (size_t)item(&window->oldest.lengths, window->row);
        fetch_next(self);
        int state = number < self->floor ? DEAD : is_last(self, number, window->id, length);
        *time = item(&window->oldest.times, window->row);
        if (state != DEAD)
            return state == LIVE;
        window->superseded -= number >= self->floor && window->superseded;
        window->id += length, self->floor = max_of(self->floor, number + 1);
    }
    if (!window->has_all)
        return false;
    self->floor = self->next;
    while (window->first_row < self->count && self->rows[window->first_row].is_gone)
        window->first_row++;
    if (window->first_row < self->count)
        *time = self->rows[window->first_row].time;
    return window->first_row < self->count;
}

/* Forget the eldest id, which `is_eldest` has found. */
static void forget_eldest(Draft *self, int64_t time)
{
    Window *window = &self->window;
    if (self->floor < self->next) {
        window->id += item(&window->oldest.lengths, window->row++);
        self->floor = window->oldest.first + window->row;
    } else
        self->rows[window->first_row].is_gone = true;
    window->held--;
    window->lost_ms = max_time(time, window->lost_ms);
}

/* Have room for so many more ids; false if Python has to supply a segment first. */
static bool has_room(Draft *self, uint64_t ids)
{
    int64_t time;
    while (self->window.held && self->window.held + ids > self->window.size) {
        if (!is_eldest(self, &time))
            return false;
        forget_eldest(self, time);
    }
    return true;
}

/* See an id, which may have a number already; -1: it has none. False if Python has to supply a segment
 * first, or with an exception. */
static bool seen_now(Draft *self, const char *id, size_t length, uint64_t hash, Added row, int64_t known)
{
    int64_t older = known >= (int64_t)self->next ? known - (int64_t)self->next : -1;
    if (known < 0 && !has_room(self, 1))
        return false;
    if (!self->window.size) /* it is forgotten at once */
        row.is_gone = true, self->window.lost_ms = max_time(row.time, self->window.lost_ms);
    if (!added(self, id, length, tag_of(hash), row, older))
        return false;
    if (!row.is_refreshed)
        self->window.newest_ms = max_time(row.time, self->window.newest_ms);
    if (known < 0)
        self->window.held += !row.is_gone;
    else if (older >= 0)
        self->rows[older].is_gone = true;
    else
        self->window.superseded++;
    return true;
}

/* see(name, source, offset, time, known, is_refreshed): note that an id was seen, which has a number
 * already unless `known` is -1; whether that was possible without another segment. */
static PyObject *Draft_see(Draft *self, PyObject *args)
{
    const char *id;
    Py_ssize_t length, source;
    long long offset, time, known;
    int is_refreshed;
    if (!PyArg_ParseTuple(args, "y#nLLLp", &id, &length, &source, &offset, &time, &known, &is_refreshed) ||
        !is_source(self, source, length, NAME_BYTES_MAX) ||
        (known >= (int64_t)self->next && !is_row(self, (Py_ssize_t)(known - (int64_t)self->next))))
        return NULL;
    Added row = {.offset = offset, .time = time, .source = (uint32_t)source, .is_refreshed = is_refreshed};
    uint64_t hash = hash_of(self->table->seed, id, (size_t)length);
    bool is_seen = seen_now(self, id, (size_t)length, hash, row, known);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(is_seen);
}

/* expire(): forget what is beyond the size, or too old for the newest accepted record; whether that was
 * possible without another segment. */
static PyObject *Draft_expire(Draft *self, PyObject *Py_UNUSED(none))
{
    int64_t time;
    while (self->window.held) {
        if (!is_eldest(self, &time))
            Py_RETURN_FALSE;
        if (self->window.held <= self->window.size && !is_old(time, self->window.newest_ms, self->window.lasts_ms))
            break;
        forget_eldest(self, time);
    }
    Py_RETURN_TRUE;
}

/* eldest(): when the eldest id was seen; None if Python has to supply a segment first, or if none is held. */
static PyObject *Draft_eldest(Draft *self, PyObject *Py_UNUSED(none))
{
    int64_t time;
    return is_eldest(self, &time) ? PyLong_FromLongLong(time) : Py_NewRef(Py_None);
}

/* supply(value): the segment at the floor, or None if no stored one is. */
static PyObject *Draft_supply(Draft *self, PyObject *value)
{
    Window *window = &self->window;
    Segment segment = {0};
    if (value != Py_None && !is_readable(value, &segment))
        return NULL;
    Py_XDECREF(window->oldest.value);
    window->oldest = segment, window->has_all = value == Py_None, window->row = 0;
    window->id = (const char *)segment.ids;
    Py_XINCREF(segment.value);
    Py_RETURN_NONE;
}

/* unread(): the name of the eldest id, if it has to be read whether it was seen again; else None. */
static PyObject *Draft_unread(Draft *self, PyObject *Py_UNUSED(none))
{
    const Window *window = &self->window;
    if (!window->oldest.value || window->row >= window->oldest.count)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(window->id, (Py_ssize_t)item(&window->oldest.lengths, window->row));
}

/* standing(): the floor, how many ids are held, and when the newest of those forgotten was seen, or -1. */
static PyObject *Draft_standing(Draft *self, PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("KKL", self->floor, self->window.held, (long long)self->window.lost_ms);
}

/* names_with_ids(value, ids): the names in a segment whose ids are among these, whatever the publisher. */
static PyObject *names_with_ids(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *value, *ids, *found;
    Segment segment;
    if (!PyArg_ParseTuple(args, "OO!", &value, &PyFrozenSet_Type, &ids) || !is_readable(value, &segment) ||
        !(found = PyList_New(0)))
        return NULL;
    const char *name = (const char *)segment.ids;
    for (uint32_t row = 0; row < segment.count; row++) {
        size_t length = (size_t)item(&segment.lengths, row), begin = length < 2 ? length : 2;
        begin += length < 2 ? 0 : (size_t)(unsigned char)name[0] << 8 | (unsigned char)name[1];
        begin = begin < length ? begin : length;
        PyObject *id = PyBytes_FromStringAndSize(name + begin, (Py_ssize_t)(length - begin));
        int is_wanted = id ? PySet_Contains(ids, id) : -1;
        Py_XDECREF(id);
        if (is_wanted < 0 ||
            (is_wanted && !listed(found, PyBytes_FromStringAndSize(name, (Py_ssize_t)length))))
            return Py_DECREF(found), NULL;
        name += length;
    }
    return found;
}
