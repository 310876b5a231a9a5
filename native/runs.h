/* Runs: files that say which number the older ids of a ring have, ordered by the hashes of the ids.
 *
 * A run covers the numbers [first, end) of one ring. Its filter rules out all but some 0.03 % of the ids
 * that it does not have; its pages have the upper 48 bits of the hash of each id, with its number and
 * where in its segment it was.
 * Runs are written once, and merged into larger ones, by functions that need no Python.
 * What always holds: a run says where an id may be, and the stored id decides; the head, the directory
 * and the filter are compared with their checksums when a run is opened, a page when it is read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif

/* The hash of an id: SipHash-1-3, keyed, since ids are chosen by others. */

typedef struct {
    uint64_t low, high;
} Seed;

static uint64_t turned(uint64_t word, int by) { return word << by | word >> (64 - by); }

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[2] += v[3], v[1] = turned(v[1], 13) ^ v[0], v[3] = turned(v[3], 16) ^ v[2];
    v[0] = turned(v[0], 32), v[2] += v[1], v[0] += v[3];
    v[1] = turned(v[1], 17) ^ v[2], v[3] = turned(v[3], 21) ^ v[0], v[2] = turned(v[2], 32);
}

/* Never 0, which stands for a number without an id. */
static uint64_t hash_of(Seed seed, const char *id, size_t length)
{
    uint64_t v[4] = {seed.low ^ 0x736f6d6570736575, seed.high ^ 0x646f72616e646f6d,
                     seed.low ^ 0x6c7967656e657261, seed.high ^ 0x7465646279746573};
    uint64_t word = 0, last = (uint64_t)length << 56;
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        memcpy(&word, id + at, 8);
        v[3] ^= word, sip_round(v), v[0] ^= word;
    }
    for (size_t i = 0; at + i < length; i++)
        last |= (uint64_t)(unsigned char)id[at + i] << 8 * i;
    v[3] ^= last, sip_round(v), v[0] ^= last;
    v[2] ^= 0xff, sip_round(v), sip_round(v), sip_round(v);
    uint64_t hash = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash ? hash : 1;
}

/* A checksum of blocks of 64 bytes: against damage, not against forgers. */

enum { BLOCK_WORDS = 8, BLOCK_BYTES = 64 };

typedef struct {
    uint64_t lanes[BLOCK_WORDS];
} Sum;

static void sum_block(Sum *sum, const void *block)
{
    uint64_t words[BLOCK_WORDS];
    memcpy(words, block, BLOCK_BYTES);
    for (int i = 0; i < BLOCK_WORDS; i++)
        sum->lanes[i] = turned(sum->lanes[i] + words[i] * 0xc2b2ae3d27d4eb4f, 31) * 0x9e3779b185ebca87;
}

static uint64_t sum_of(const Sum *sum)
{
    uint64_t total = 0;
    for (int i = 0; i < BLOCK_WORDS; i++)
        total = turned(total ^ sum->lanes[i], 27) * 0x9e3779b185ebca87 + (uint64_t)i;
    return total ^ total >> 32;
}

static uint64_t sum_of_bytes(const void *bytes, size_t length)
{
    Sum sum = {{0}};
    for (size_t at = 0; at < length; at += BLOCK_BYTES)
        sum_block(&sum, (const char *)bytes + at);
    return sum_of(&sum);
}

/* The file: a page with its head, the filter, pages of entries, the directory, and marks if there are any:
 * a bit for each number that has no entry, or whose id may have a later number in the same run. All numbers
 * are in the machine's order; on one of the other order the head's first field differs. */

enum {
    PAGE_BYTES = 4096,
    ENTRY_BYTES = 12,
    PAGE_ENTRIES = 340, /* behind 16 bytes, of which the first 8 are the checksum of the rest */
    BITS_PER_ID = 20,   /* of the filter: 2.5 bytes of memory for an id, and 0.03 % false hits */
    STREAM_BYTES = 1 << 16,
};

#define RUN_MAGIC 0x326e75722d666e72 /* "rnf-run2" */
#define DAMAGED EBADMSG

typedef struct {
    uint64_t magic, check, first, end, count, blocks, pages, mark, filter_sum, directory_sum;
    uint64_t marks, marks_sum; /* how many numbers are marked */
    uint64_t unused[3], sum;
} Head;

_Static_assert(sizeof(Head) % BLOCK_BYTES == 0, "a head is summed in blocks");

static uint64_t sum_of_head(const Head *head)
{
    Head copy = *head;
    copy.sum = 0;
    return sum_of_bytes(&copy, sizeof copy);
}

static uint64_t filter_bytes(const Head *head) { return head->blocks * BLOCK_BYTES; }

static uint64_t pages_at(const Head *head)
{
    return PAGE_BYTES + (filter_bytes(head) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* The directory has the first hash of each page, and zeros up to a whole block. */
static uint64_t directory_bytes(const Head *head)
{
    return (head->pages * 8 + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static uint64_t directory_at(const Head *head) { return pages_at(head) + head->pages * PAGE_BYTES; }

static uint64_t marks_at(const Head *head) { return directory_at(head) + directory_bytes(head); }

static uint64_t marks_bytes(uint64_t numbers) { return (numbers / 8 / BLOCK_BYTES + 1) * BLOCK_BYTES; }

/* Blocks are in the order of the hashes, so a filter is written as its entries are. */
static uint64_t block_of(uint64_t hash48, uint64_t blocks)
{
    return (uint64_t)((unsigned __int128)(hash48 << 16) * blocks >> 64);
}

/* An id has one bit in each of the eight words of its block. */
static uint64_t bits_of(uint64_t hash48)
{
    uint64_t bits = hash48 * 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9;
    return bits ^ bits >> 32;
}

static void set_bits(uint64_t *block, uint64_t hash48)
{
    uint64_t bits = bits_of(hash48);
    for (int i = 0; i < BLOCK_WORDS; i++, bits >>= 6)
        block[i] |= (uint64_t)1 << (bits & 63);
}

static bool has_bits(const uint64_t *block, uint64_t bits)
{
    uint64_t all = 1;
    for (int i = 0; i < BLOCK_WORDS / 2; i++, bits >>= 6)
        all &= block[i] >> (bits & 63);
    for (int i = BLOCK_WORDS / 2; all && i < BLOCK_WORDS; i++, bits >>= 6)
        all &= block[i] >> (bits & 63);
    return all;
}

typedef struct {
    uint64_t sum, count;
    unsigned char entries[PAGE_ENTRIES * ENTRY_BYTES];
} Page;

_Static_assert(sizeof(Page) == PAGE_BYTES, "a page is a page");

static uint64_t sum_of_page(const Page *page)
{
    Sum sum = {{0}};
    unsigned char first[BLOCK_BYTES];
    memcpy(first, page, BLOCK_BYTES), memset(first, 0, 8), sum_block(&sum, first);
    for (size_t at = BLOCK_BYTES; at < PAGE_BYTES; at += BLOCK_BYTES)
        sum_block(&sum, (const char *)page + at);
    return sum_of(&sum);
}

static bool is_whole_page(const Page *page)
{
    return page->count <= PAGE_ENTRIES && page->sum == sum_of_page(page);
}

static uint64_t hash_at(const Page *page, size_t index)
{
    uint64_t hash = 0;
    memcpy(&hash, page->entries + index * ENTRY_BYTES, 6);
    return hash;
}

static uint32_t row_at_entry(const Page *page, size_t index)
{
    uint32_t row;
    memcpy(&row, page->entries + index * ENTRY_BYTES + 6, 4);
    return row;
}

static uint16_t distance_at(const Page *page, size_t index)
{
    uint16_t distance;
    memcpy(&distance, page->entries + index * ENTRY_BYTES + 10, 2);
    return distance;
}

/* What reads and writes return: 0, or an error of errno.h; DAMAGED if a checksum is wrong. */

static int read_all(int file, void *into, size_t length, uint64_t at)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = pread(file, (char *)into + done, length - done, (off_t)(at + done));
        if (count < 0 && errno != EINTR)
            return errno;
        if (!count)
            return DAMAGED;
        done += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

static int write_all(int file, const void *bytes, size_t length, uint64_t at)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = pwrite(file, (const char *)bytes + done, length - done, (off_t)(at + done));
        if (count < 0 && errno != EINTR)
            return errno;
        done += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

/* Writing. */

typedef struct {
    uint64_t at;
    size_t used;
    char bytes[STREAM_BYTES];
} Stream;

typedef struct {
    int file;
    Head head;
    uint64_t *directory, block[BLOCK_WORDS], block_at, last_hash;
    uint32_t last_row;
    unsigned char *marks; /* of all numbers */
    size_t room;
    Sum filter_sum;
    Page page;
    Stream filter, pages;
} Writer;

static int stream(Writer *self, Stream *out, const void *bytes, size_t length)
{
    int error = 0;
    if (out->used + length > STREAM_BYTES) {
        error = write_all(self->file, out->bytes, out->used, out->at);
        out->at += out->used, out->used = 0;
    }
    memcpy(out->bytes + out->used, bytes, length);
    out->used += length;
    return error;
}

static int end_block(Writer *self)
{
    sum_block(&self->filter_sum, self->block);
    int error = stream(self, &self->filter, self->block, BLOCK_BYTES);
    memset(self->block, 0, BLOCK_BYTES), self->block_at++;
    return error;
}

static int end_page(Writer *self)
{
    self->page.sum = sum_of_page(&self->page);
    int error = stream(self, &self->pages, &self->page, PAGE_BYTES);
    memset(&self->page, 0, PAGE_BYTES), self->head.pages++;
    return error;
}

/* Begin a run of at most so many entries, the file being new. */
static Writer *begin_run(int file, uint64_t first, uint64_t end, uint64_t count, uint64_t check,
                         uint64_t mark)
{
    Writer *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->file = file;
    self->head = (Head){.magic = RUN_MAGIC, .check = check, .first = first, .end = end, .mark = mark};
    if (!(self->marks = calloc(1, marks_bytes(end - first)))) {
        free(self);
        return NULL;
    }
    self->head.blocks = count * BITS_PER_ID / (8 * BLOCK_BYTES) + 1;
    self->filter.at = PAGE_BYTES, self->pages.at = pages_at(&self->head);
    return self;
}

static void mark_row(Writer *self, uint64_t row)
{
    unsigned char bit = (unsigned char)(1 << row % 8);
    self->head.marks += !(self->marks[row / 8] & bit);
    self->marks[row / 8] |= bit;
}

/* Add an entry; hashes must not descend, nor numbers of one hash. */
static int put_entry(Writer *self, uint64_t hash48, uint32_t row, uint16_t distance)
{
    int error = 0;
    uint64_t block = block_of(hash48, self->head.blocks);
    while (!error && self->block_at < block)
        error = end_block(self);
    set_bits(self->block, hash48);
    if (!error && self->page.count == PAGE_ENTRIES)
        error = end_page(self);
    if (error)
        return error;
    if (!self->page.count) {
        if (self->head.pages == self->room) {
            size_t room = 2 * self->room + BLOCK_WORDS;
            uint64_t *directory = realloc(self->directory, room * sizeof *directory);
            if (!directory)
                return ENOMEM;
            self->directory = directory, self->room = room;
        }
        self->directory[self->head.pages] = hash48;
    }
    unsigned char *entry = self->page.entries + self->page.count++ * ENTRY_BYTES;
    memcpy(entry, &hash48, 6), memcpy(entry + 6, &row, 4), memcpy(entry + 10, &distance, 2);
    if (self->head.count && hash48 == self->last_hash)
        mark_row(self, self->last_row);
    self->head.count++, self->last_hash = hash48, self->last_row = row;
    return 0;
}

static int end_run(Writer *self)
{
    int error = 0;
    while (!error && self->block_at < self->head.blocks)
        error = end_block(self);
    if (!error && self->page.count)
        error = end_page(self);
    for (Stream *out = &self->filter; !error && out; out = out == &self->filter ? &self->pages : NULL)
        error = write_all(self->file, out->bytes, out->used, out->at);
    self->head.filter_sum = sum_of(&self->filter_sum);
    size_t length = directory_bytes(&self->head);
    uint64_t *directory = realloc(self->directory, length + BLOCK_BYTES);
    if (!directory)
        return ENOMEM;
    self->directory = directory;
    memset(directory + self->head.pages, 0, length - self->head.pages * 8);
    self->head.directory_sum = sum_of_bytes(directory, length);
    if (!error)
        error = write_all(self->file, directory, length, directory_at(&self->head));
    size_t marks = self->head.marks ? marks_bytes(self->head.end - self->head.first) : 0;
    self->head.marks_sum = sum_of_bytes(self->marks, marks);
    if (!error)
        error = write_all(self->file, self->marks, marks, marks_at(&self->head));
    if (!error && ftruncate(self->file, (off_t)(marks_at(&self->head) + marks)))
        error = errno; /* a run without entries ends behind what was written */
    self->head.sum = sum_of_head(&self->head);
    return error ? error : write_all(self->file, &self->head, sizeof self->head, 0);
}

static void free_writer(Writer *self)
{
    if (self)
        free(self->directory), free(self->marks);
    free(self);
}

/* An id of consecutive numbers: its hash, 0 if it is forgotten, and its row in its segment. */
typedef struct {
    uint64_t hash;
    uint32_t distance, row;
} Hashed;

/* Sort by the upper 48 bits of the hashes: by radix, its order of equals is that of the rows. */
static Hashed *sorted_by_hash(Hashed *from, Hashed *other, size_t count)
{
    for (int shift = 16; shift < 64; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < count; i++)
            starts[(from[i].hash >> shift & 0xff) + 1]++;
        for (int i = 0; i < 256; i++)
            starts[i + 1] += starts[i];
        for (size_t i = 0; i < count; i++)
            other[starts[from[i].hash >> shift & 0xff]++] = from[i];
        Hashed *sorted = other;
        other = from, from = sorted;
    }
    return from;
}

/* Write a run of the ids of consecutive numbers. */
static int write_run(int file, uint64_t first, const Hashed *ids, size_t numbers, uint64_t check,
                     uint64_t mark)
{
    Hashed *rows = malloc((2 * numbers + 1) * sizeof *rows);
    size_t count = 0;
    for (size_t i = 0; rows && i < numbers; i++)
        if (ids[i].hash)
            rows[count++] = (Hashed){ids[i].hash, ids[i].distance, (uint32_t)i};
    Writer *writer = rows ? begin_run(file, first, first + numbers, count, check, mark) : NULL;
    int error = writer ? 0 : ENOMEM;
    Hashed *sorted = writer ? sorted_by_hash(rows, rows + numbers, count) : NULL;
    for (size_t i = 0; !error && i < numbers; i++)
        if (!ids[i].hash)
            mark_row(writer, i);
    for (size_t i = 0; !error && i < count; i++)
        error = put_entry(writer, sorted[i].hash >> 16, sorted[i].row, (uint16_t)sorted[i].distance);
    error = error ? error : end_run(writer);
    free_writer(writer), free(rows);
    return error;
}

/* Reading. */

typedef struct {
    int file;
    Head head;
    uint64_t *directory;
    const char *mapped; /* the head and the filter; NULL: the filter is read for each id */
    unsigned char marks[BLOCK_BYTES]; /* those read last */
    uint64_t marks_from;              /* which block of them that is; UINT64_MAX: none */
} RunFile;

static void close_run(RunFile *self)
{
    if (self->mapped)
        munmap((void *)(uintptr_t)self->mapped, PAGE_BYTES + filter_bytes(&self->head));
    if (self->file >= 0)
        close(self->file);
    free(self->directory);
    *self = (RunFile){.file = -1};
}

/* Map the filter, or stop to; a map that the system refuses is done without. */
static void map_filter(RunFile *self, bool is_mapped)
{
    size_t length = PAGE_BYTES + filter_bytes(&self->head);
    if (!is_mapped == !self->mapped)
        return;
    if (self->mapped)
        munmap((void *)(uintptr_t)self->mapped, length), self->mapped = NULL;
    else {
        void *mapped = mmap(NULL, length, PROT_READ, MAP_SHARED | MAP_POPULATE, self->file, 0);
        self->mapped = mapped == MAP_FAILED ? NULL : mapped;
    }
}

/* Compare the checksum of the filter, reading it in order. */
static int check_filter(const RunFile *self)
{
    Sum sum = {{0}};
    char *bytes = malloc(STREAM_BYTES);
    int error = bytes ? 0 : ENOMEM;
    uint64_t length = filter_bytes(&self->head), part;
    for (uint64_t at = 0; !error && at < length; at += part) {
        part = length - at < STREAM_BYTES ? length - at : STREAM_BYTES;
        error = read_all(self->file, bytes, part, PAGE_BYTES + at);
        for (uint64_t i = 0; !error && i < part; i += BLOCK_BYTES)
            sum_block(&sum, bytes + i);
    }
    free(bytes);
    return error ? error : sum_of(&sum) == self->head.filter_sum ? 0 : DAMAGED;
}

static int check_marks(const RunFile *self)
{
    uint64_t length = self->head.marks ? marks_bytes(self->head.end - self->head.first) : 0;
    char *marks = malloc(length + 1);
    int error = marks ? read_all(self->file, marks, length, marks_at(&self->head)) : ENOMEM;
    if (!error && sum_of_bytes(marks, length) != self->head.marks_sum)
        error = DAMAGED;
    free(marks);
    return error;
}

/* Whether a number is marked; -1 if that cannot be read. */
static int is_marked(RunFile *self, uint64_t number)
{
    uint64_t row = number - self->head.first, block = row / 8 / BLOCK_BYTES;
    if (!self->head.marks)
        return false;
    if (block != self->marks_from) {
        self->marks_from = UINT64_MAX;
        if (read_all(self->file, self->marks, BLOCK_BYTES, marks_at(&self->head) + block * BLOCK_BYTES))
            return -1;
        self->marks_from = block;
    }
    return self->marks[row / 8 % BLOCK_BYTES] >> row % 8 & 1;
}

/* Open a run and check all but its pages, which are checked when they are read. */
static int open_run(RunFile *self, int file, uint64_t check)
{
    struct stat status;
    Head *head = &self->head;
    *self = (RunFile){.file = file, .marks_from = UINT64_MAX};
    int error = fstat(file, &status) ? errno : read_all(file, head, sizeof *head, 0);
    if (error)
        return error;
    uint64_t size = (uint64_t)status.st_size;
    if (head->magic != RUN_MAGIC || head->check != check || head->sum != sum_of_head(head) ||
        head->first > head->end || head->end - head->first > UINT32_MAX ||
        size / BLOCK_BYTES < head->blocks || size / PAGE_BYTES < head->pages || !head->blocks ||
        size != marks_at(head) + (head->marks ? marks_bytes(head->end - head->first) : 0))
        return DAMAGED;
    if (!(self->directory = malloc(directory_bytes(head) + BLOCK_BYTES)))
        return ENOMEM;
    error = read_all(file, self->directory, directory_bytes(head), directory_at(head));
    if (!error && sum_of_bytes(self->directory, directory_bytes(head)) != head->directory_sum)
        error = DAMAGED;
    error = error ? error : check_filter(self);
    return error ? error : check_marks(self);
}

static int read_page(const RunFile *self, uint64_t number, Page *page)
{
    int error = read_all(self->file, page, PAGE_BYTES, pages_at(&self->head) + number * PAGE_BYTES);
    return error ? error : is_whole_page(page) ? 0 : DAMAGED;
}

/* Have the processor fetch what `may_have` reads. */
static void fetch_block(const RunFile *self, uint64_t hash48)
{
    if (self->mapped)
        __builtin_prefetch(self->mapped + PAGE_BYTES +
                           block_of(hash48, self->head.blocks) * BLOCK_BYTES);
}

/* Whether a run may have an id: -1 if the filter cannot be read. */
static int may_have(const RunFile *self, uint64_t hash48, uint64_t bits)
{
    uint64_t block[BLOCK_WORDS], at = PAGE_BYTES + block_of(hash48, self->head.blocks) * BLOCK_BYTES;
    if (self->mapped)
        return has_bits((const uint64_t *)(const void *)(self->mapped + at), bits);
    return read_all(self->file, block, BLOCK_BYTES, at) ? -1 : has_bits(block, bits);
}

/* Where a search for a hash goes on. */
typedef struct {
    uint64_t page_number;
    size_t index;
    uint16_t distance; /* of the number that was found */
    bool is_read;
    Page page;
} Cursor;

/* The next number that an id with this hash may have, oldest first; -1: no more; -2: an error. */
static int64_t next_number(const RunFile *self, uint64_t hash48, Cursor *cursor)
{
    if (!cursor->is_read) {
        uint64_t low = 0, high = self->head.pages;
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            if (self->directory[middle] < hash48)
                low = middle + 1;
            else
                high = middle;
        }
        cursor->page_number = low ? low - 1 : 0, cursor->index = PAGE_ENTRIES + 1;
    }
    for (;; cursor->page_number++, cursor->index = PAGE_ENTRIES + 1) {
        if (cursor->index > PAGE_ENTRIES) {
            if (cursor->page_number >= self->head.pages ||
                self->directory[cursor->page_number] > hash48)
                return -1;
            if (read_page(self, cursor->page_number, &cursor->page))
                return -2;
            size_t low = 0, high = cursor->page.count;
            while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (hash_at(&cursor->page, middle) < hash48)
                    low = middle + 1;
                else
                    high = middle;
            }
            cursor->index = low, cursor->is_read = true;
        }
        if (cursor->index < cursor->page.count) {
            if (hash_at(&cursor->page, cursor->index) != hash48)
                return -1;
            cursor->distance = distance_at(&cursor->page, cursor->index);
            return (int64_t)(self->head.first + row_at_entry(&cursor->page, cursor->index++));
        }
    }
}

/* Merging: adjacent runs, oldest first, become one, without the numbers below a floor. */

typedef struct {
    RunFile *run;
    uint64_t next_page;
    size_t index;
    Page page;
} Source;

typedef struct {
    Writer *writer;
    uint64_t floor;
    size_t count, marked; /* runs whose marks were taken over */
    Source *sources;
} Merger;

/* Have the page at hand in which the next entry is; an index past its end means: none is left. */
static int advance(Source *source)
{
    if (source->index < source->page.count || source->next_page >= source->run->head.pages)
        return 0;
    source->index = 0;
    return read_page(source->run, source->next_page++, &source->page);
}

static int begin_merge(Merger *self, int file, RunFile **runs, size_t count, uint64_t floor)
{
    uint64_t first = runs[0]->head.first, end = runs[count - 1]->head.end, entries = 0;
    int error = 0;
    first = first > floor ? first : floor < end ? floor : end;
    self->floor = first, self->count = count;
    if (!(self->sources = calloc(count, sizeof *self->sources)))
        return ENOMEM;
    for (size_t i = 0; !error && i < count; i++) {
        const Head *head = &runs[i]->head;
        uint64_t dead = head->first < first ? first - head->first : 0;
        uint64_t left = head->end - head->first > dead ? head->end - head->first - dead : 0;
        entries += left < head->count ? left : head->count;
        self->sources[i].run = runs[i];
        error = advance(&self->sources[i]);
    }
    if (error)
        return error;
    self->writer = begin_run(file, first, end, entries, runs[0]->head.check, runs[count - 1]->head.mark);
    return self->writer ? 0 : ENOMEM;
}

/* Mark what is marked in the next run, and what the one before does not reach. */
static int mark_next(Merger *self)
{
    RunFile *run = self->sources[self->marked].run;
    uint64_t end = self->marked ? self->sources[self->marked - 1].run->head.end : 0;
    for (end = end > self->floor ? end : self->floor; end < run->head.first; end++)
        mark_row(self->writer, end - self->floor);
    uint64_t number = run->head.first > self->floor ? run->head.first : self->floor;
    RunFile own = {.file = run->file, .head = run->head, .marks_from = UINT64_MAX};
    for (int found; run->head.marks && number < run->head.end; number++) {
        if ((found = is_marked(&own, number)) < 0)
            return DAMAGED;
        if (found)
            mark_row(self->writer, number - self->floor);
    }
    self->marked++;
    return 0;
}

/* Write at most so many entries; *is_done once the file is whole. */
static int merge_some(Merger *self, size_t entries, bool *is_done)
{
    int error = 0;
    while (!error && entries--) {
        Source *least = NULL;
        uint64_t hash = UINT64_MAX;
        for (size_t i = 0; i < self->count; i++) {
            Source *source = &self->sources[i];
            if (source->index < source->page.count && hash_at(&source->page, source->index) < hash)
                hash = hash_at(&source->page, source->index), least = source;
        }
        if (!least) {
            if (self->marked < self->count)
                return mark_next(self);
            *is_done = true;
            return end_run(self->writer);
        }
        uint64_t number = least->run->head.first + row_at_entry(&least->page, least->index);
        if (number >= self->floor)
            error = put_entry(self->writer, hash, (uint32_t)(number - self->floor),
                              distance_at(&least->page, least->index));
        least->index++;
        error = error ? error : advance(least);
    }
    return error;
}
