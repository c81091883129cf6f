/* A work-around for the emulation shims of XRT before 2.14 (Debian has 2.13), preloaded by the scripts of
   `headrace xrt-env`.

   When a message needs more room than earlier ones, such a shim calls realloc, ignores the block that it returns and writes
   past the end of the old block. So this library enlarges every block that the shims take from malloc to their largest
   message. It also keeps that size in realloc, because glibc would shrink the block and move it at the next growth. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *block, size_t size);

enum { ROOM = 9 << 20 }; /* the shims' largest message: 8 MiB of a buffer, and its other fields */

static unsigned long code_begins, code_ends; /* addresses of the shim's code */

static int find_shim(struct dl_phdr_info *library, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(library->dlpi_name, "libxrt_swemu") && !strstr(library->dlpi_name, "libxrt_hwemu")) return 0;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X)) {
            code_begins = library->dlpi_addr + part->p_vaddr;
            code_ends = code_begins + part->p_memsz;
        }
    }
    return 1;
}

void *dlopen(const char *name, int flags) {
    static void *(*real)(const char *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    void *library = real(name, flags);
    dl_iterate_phdr(find_shim, NULL);
    return library;
}

static size_t with_room(size_t size, const void *caller) {
    const int shim = (unsigned long)caller >= code_begins && (unsigned long)caller < code_ends;
    return shim && size < ROOM ? ROOM : size;
}

void *malloc(size_t size) { return __libc_malloc(with_room(size, __builtin_return_address(0))); }

void *realloc(void *block, size_t size) { return __libc_realloc(block, with_room(size, __builtin_return_address(0))); }
