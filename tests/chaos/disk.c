/* A disk that forgets: a library to preload under a program whose files are put to the test.
 *
 * It watches the files below one directory. Every change to them is carried out as usual, so that
 * the program sees what a page cache would show it, and is written down in a journal as well: what
 * was written where, which names were made, moved and deleted, what was flushed. From the journal
 * `disk.py` works out what a power cut leaves. Nothing is really flushed: the model is the disk.
 *
 * The rules of the model:
 *   - a flush that succeeds puts a file's content and size on the disk, a directory's flush its names;
 *   - a flush that fails (a fault, below) puts nothing there, and leaves the content marked as clean:
 *     it stays readable, and never reaches the disk unless it is written again. As in Linux, every
 *     other open descriptor of the file is told of the error at its next flush, once;
 *   - a program that maps a watched file to write into it is reported, because that goes unseen;
 *     SQLite's shared index (-shm) is no data, and is left out altogether.
 *
 * Environment: DISK_ROOT, the directory; DISK_JOURNAL and DISK_FAULTS, two files outside of it.
 * The file of faults is read before each operation, so that they can be changed at any time. Each of
 * its lines is a rule: OPERATION ERROR FIRST LAST PATTERN. It strikes the operations number FIRST to
 * LAST (0: all from FIRST on) of those that it fits, counted from the moment when this process has
 * first seen the line, as long as it is there. Who wants to know whether a rule has struck finds a byte
 * for each time in the file DISK_FAULTS with `.struck` behind it. OPERATION is open, write, cut (truncate), name (rename, link, unlink, mkdir),
 * sync, or any. ERROR is an errno, or 0: the process is killed before the operation is carried out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FILES 4096
#define MOST_RULES 64
#define RULE_BYTES 256

struct record { /* then `name_bytes` of a name, then `data_bytes` of content or of a second name */
    char kind;
    char padding[3];
    uint32_t name_bytes;
    uint64_t inode;
    uint64_t place;
    uint64_t data_bytes;
};

struct watched {
    uint64_t inode; /* 0: not watched */
    int is_directory;
    int owed_error;
    char name[256];
};

struct rule {
    char line[RULE_BYTES];
    long seen;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct watched files[MOST_FILES];
static struct rule rules[MOST_RULES];
static int rule_count, journal = -1, root_length;
static char root[PATH_MAX];
static const char *faults;

__attribute__((constructor)) static void begin(void) {
    const char *place = getenv("DISK_ROOT"), *path = getenv("DISK_JOURNAL");
    faults = getenv("DISK_FAULTS");
    if (!place || !path || !faults || !realpath(place, root))
        return;
    root_length = (int)strlen(root);
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int is_index(const char *name) {
    size_t length = strlen(name);
    return length > 4 && !strcmp(name + length - 4, "-shm");
}

/* The name of a path below the root; NULL if it is not below, or not data. `name` is PATH_MAX. */
static const char *below(int at, const char *path, char *name) {
    char folder[PATH_MAX], whole[PATH_MAX];
    if (journal < 0 || !path || !*path)
        return NULL;
    if (*path == '/')
        snprintf(whole, sizeof whole, "%s", path);
    else {
        char base[PATH_MAX], link[64];
        if (at == AT_FDCWD) {
            if (!getcwd(base, sizeof base))
                return NULL;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0)
                return NULL;
            base[length] = 0;
        }
        if (snprintf(whole, sizeof whole, "%s/%s", base, path) >= (int)sizeof whole)
            return NULL;
    }
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/'; end--)
        whole[end - 1] = 0;
    char *slash = strrchr(whole, '/');
    char last[NAME_MAX + 1];
    snprintf(last, sizeof last, "%s", slash + 1);
    *slash = 0;
    if (!realpath(*whole ? whole : "/", folder))
        return NULL;
    if (snprintf(name, PATH_MAX, "%s/%s", folder, last) >= PATH_MAX)
        return NULL;
    if (!strcmp(name, root))
        return "";
    if (strncmp(name, root, root_length) || name[root_length] != '/' || is_index(name))
        return NULL;
    return name + root_length + 1;
}

static void note(char kind, uint64_t inode, uint64_t place, const char *name, const void *data,
                 size_t bytes) {
    struct record head = {kind, {0}, name ? (uint32_t)strlen(name) : 0, inode, place, bytes};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)name, head.name_bytes}, {(void *)data, bytes}};
    size_t whole = sizeof head + head.name_bytes + bytes;
    if (syscall(SYS_writev, journal, parts, 3) != (long)whole)
        abort(); /* a disk that lies about itself is no use */
}

/* Forget the counts of lines that are not there any more: such a line counts anew when it comes back. */
static void forget_rules(const char *text) {
    int kept = 0;
    for (int at = 0; at < rule_count; at++) {
        const char *line = strstr(text, rules[at].line);
        if (line && kept != at)
            rules[kept] = rules[at];
        kept += line != NULL;
    }
    rule_count = kept;
}

static void tell_strike(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.struck", faults);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) {
        if (syscall(SYS_write, file, ".", 1) != 1)
            abort();
        syscall(SYS_close, file);
    }
}

/* The errno that the next operation shall fail with; 0 if it is to be carried out. */
static int fault(const char *operation, const char *name) {
    char text[8192];
    int file = (int)syscall(SYS_openat, AT_FDCWD, faults, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    long length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    text[length > 0 ? length : 0] = 0;
    forget_rules(text);
    int found = 0;
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char kind[16], pattern[128];
        int error;
        long first, last;
        if (sscanf(line, "%15s %d %ld %ld %127s", kind, &error, &first, &last, pattern) != 5)
            abort();
        if ((strcmp(kind, operation) && strcmp(kind, "any")) || fnmatch(pattern, name, 0))
            continue;
        int at = 0;
        while (at < rule_count && strcmp(rules[at].line, line))
            at++;
        if (at == rule_count) {
            if (at == MOST_RULES || strlen(line) >= RULE_BYTES)
                abort();
            rules[rule_count].seen = 0;
            strcpy(rules[rule_count++].line, line);
        }
        long number = ++rules[at].seen;
        if (number >= first && (!last || number <= last)) {
            tell_strike();
            if (!error)
                kill(getpid(), SIGKILL);
            found = found ? found : error;
        }
    }
    return found;
}

static struct watched *watched(int file) {
    return file >= 0 && file < MOST_FILES && files[file].inode ? &files[file] : NULL;
}

/* Leave with an error, or go on: every operation on a watched file begins with this. */
#define OR_FAIL(operation, name, failed)                             \
    do {                                                             \
        int error_ = fault(operation, name);                         \
        if (error_) {                                                \
            pthread_mutex_unlock(&lock);                             \
            errno = error_;                                          \
            return failed;                                           \
        }                                                            \
    } while (0)

#define LEAVE(result)                                                \
    do {                                                             \
        int kept_ = errno;                                           \
        pthread_mutex_unlock(&lock);                                 \
        errno = kept_;                                               \
        return result;                                               \
    } while (0)

static int open_at(int at, const char *path, int flags, mode_t mode) {
    char place[PATH_MAX];
    const char *name = below(at, path, place);
    if (!name) {
        int other = (int)syscall(SYS_openat, at, path, flags, mode);
        if (other >= 0 && other < MOST_FILES)
            files[other].inode = 0; /* closedir() and fclose() close unseen: this number was another's */
        return other;
    }
    pthread_mutex_lock(&lock);
    struct stat before, now;
    int was_there = !fstatat(at, path, &before, AT_SYMLINK_NOFOLLOW);
    OR_FAIL("open", name, -1);
    int file = (int)syscall(SYS_openat, at, path, flags, mode);
    if (file >= 0 && file < MOST_FILES && !fstat(file, &now)) {
        struct watched *mine = &files[file];
        mine->inode = now.st_ino;
        mine->is_directory = S_ISDIR(now.st_mode);
        mine->owed_error = 0;
        snprintf(mine->name, sizeof mine->name, "%s", name);
        if (!was_there)
            note('C', now.st_ino, 0, name, NULL, 0);
        else if (flags & O_TRUNC)
            note('T', now.st_ino, 0, NULL, NULL, 0);
    }
    LEAVE(file);
}

#define MODE(flags)                                                  \
    mode_t mode = 0;                                                 \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {   \
        va_list list;                                                \
        va_start(list, flags);                                       \
        mode = va_arg(list, mode_t);                                 \
        va_end(list);                                                \
    }

int open(const char *path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return open_at(at, path, flags, mode); }

int close(int file) {
    struct watched *mine = watched(file);
    if (mine) {
        pthread_mutex_lock(&lock);
        mine->inode = 0;
        pthread_mutex_unlock(&lock);
    }
    return (int)syscall(SYS_close, file);
}

static ssize_t write_at(int file, const void *data, size_t bytes, off_t place) {
    struct watched *mine = watched(file);
    if (!mine)
        return place < 0 ? syscall(SYS_write, file, data, bytes)
                         : syscall(SYS_pwrite64, file, data, bytes, place);
    pthread_mutex_lock(&lock);
    OR_FAIL("write", mine->name, -1);
    if (place < 0) {
        int flags = fcntl(file, F_GETFL);
        place = lseek(file, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
        lseek(file, place + (off_t)bytes, SEEK_SET);
    }
    ssize_t done = syscall(SYS_pwrite64, file, data, bytes, place);
    if (done > 0)
        note('W', mine->inode, (uint64_t)place, NULL, data, (size_t)done);
    LEAVE(done);
}

ssize_t write(int file, const void *data, size_t bytes) { return write_at(file, data, bytes, -1); }
ssize_t pwrite(int file, const void *data, size_t bytes, off_t place) { return write_at(file, data, bytes, place); }
ssize_t pwrite64(int file, const void *data, size_t bytes, off_t place) { return write_at(file, data, bytes, place); }

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (!watched(file))
        return syscall(SYS_writev, file, parts, count);
    ssize_t sum = 0;
    for (int each = 0; each < count; each++) {
        ssize_t done = write_at(file, parts[each].iov_base, parts[each].iov_len, -1);
        if (done < 0)
            return sum ? sum : done;
        sum += done;
    }
    return sum;
}

int ftruncate(int file, off_t length) {
    struct watched *mine = watched(file);
    if (!mine)
        return (int)syscall(SYS_ftruncate, file, length);
    pthread_mutex_lock(&lock);
    OR_FAIL("cut", mine->name, -1);
    int result = (int)syscall(SYS_ftruncate, file, length);
    if (!result)
        note('T', mine->inode, (uint64_t)length, NULL, NULL, 0);
    LEAVE(result);
}

int ftruncate64(int file, off_t length) { return ftruncate(file, length); }

static int flush(int file) {
    struct watched *mine = watched(file);
    if (!mine)
        return 0;
    pthread_mutex_lock(&lock);
    int dropped = fault("sync", mine->name), error = dropped ? dropped : mine->owed_error;
    mine->owed_error = 0;
    for (int other = 0; dropped && other < MOST_FILES; other++)
        if (other != file && files[other].inode == mine->inode)
            files[other].owed_error = dropped;
    /* An error that is only told late lost what was dirty then; what is dirty now gets there. */
    char kind = mine->is_directory ? (dropped ? 'E' : 'D') : (dropped ? 'F' : 'S');
    note(kind, mine->inode, 0, mine->name, NULL, 0);
    errno = error;
    LEAVE(error ? -1 : 0);
}

int fsync(int file) { return flush(file); }
int fdatasync(int file) { return flush(file); }
int sync_file_range(int file, off64_t from, off64_t bytes, unsigned flags) {
    (void)from, (void)bytes, (void)flags; /* starts writing back; promises nothing about a power cut */
    return watched(file) ? 0 : (int)syscall(SYS_sync_file_range, file, from, bytes, flags);
}

static int two_names(char kind, int at, const char *old, int to, const char *new, unsigned flags) {
    char place[PATH_MAX], other[PATH_MAX];
    const char *name = below(at, old, place), *second = below(to, new, other);
    int is_link = kind == 'L';
    if (!name || !second)
        return (int)(is_link ? syscall(SYS_linkat, at, old, to, new, flags)
                             : syscall(SYS_renameat2, at, old, to, new, flags));
    pthread_mutex_lock(&lock);
    OR_FAIL("name", second, -1);
    int result = (int)(is_link ? syscall(SYS_linkat, at, old, to, new, flags)
                               : syscall(SYS_renameat2, at, old, to, new, flags));
    if (!result)
        note(kind, 0, 0, name, second, strlen(second));
    LEAVE(result);
}

int rename(const char *old, const char *new) { return two_names('R', AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int at, const char *old, int to, const char *new) { return two_names('R', at, old, to, new, 0); }
int link(const char *old, const char *new) { return two_names('L', AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int at, const char *old, int to, const char *new, int flags) {
    return two_names('L', at, old, to, new, (unsigned)flags);
}

int unlinkat(int at, const char *path, int flags) {
    char place[PATH_MAX];
    const char *name = below(at, path, place);
    if (!name)
        return (int)syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&lock);
    OR_FAIL("name", name, -1);
    int result = (int)syscall(SYS_unlinkat, at, path, flags);
    if (!result)
        note('U', 0, 0, name, NULL, 0);
    LEAVE(result);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    char place[PATH_MAX];
    const char *name = below(at, path, place);
    if (!name)
        return (int)syscall(SYS_mkdirat, at, path, mode);
    pthread_mutex_lock(&lock);
    OR_FAIL("name", name, -1);
    int result = (int)syscall(SYS_mkdirat, at, path, mode);
    if (!result)
        note('M', 0, 0, name, NULL, 0);
    LEAVE(result);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t place) {
    if ((protection & PROT_WRITE) && (flags & MAP_SHARED) && watched(file))
        note('X', files[file].inode, 0, files[file].name, NULL, 0);
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, place);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off_t place) {
    return mmap(address, bytes, protection, flags, file, place);
}
