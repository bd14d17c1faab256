/*
 * A libcuda.so.1 without a GPU. It answers as an idle machine would, except for what FAKE_CUDA says:
 *
 *     cuInit=802                        every call of cuInit returns 802
 *     cuInit@GPU-3=802                  only where CUDA_VISIBLE_DEVICES has these letters in it
 *     cuMemcpyPeer@0>1=corrupt          only a copy from device 0 to device 1
 *     cuDeviceGetCount=#0               the number it gives (also: cuDriverGetVersion, cuDeviceCanAccessPeer,
 *                                       cuDeviceGetAttribute.75 for compute capability's major, cuMemGetInfo_v2)
 *
 * joined by `;`, the first that fits wins. A value is a code, #number, hang, abort, segv, exit (with code 7), or corrupt (what
 * was copied or read back differs in one byte). There are as many devices as CUDA_VISIBLE_DEVICES has entries. Memory is
 * the host's.
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Result; /* CUresult */
enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 100, INVALID_DEVICE, INVALID_CONTEXT = 201 };
enum { DEVICES = 16, CORRUPT = -1 };

static int started, current = -1;
static char contexts[DEVICES];
static int retained[DEVICES];

static int visible(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int count = 1;
    if (!list) return 2;
    if (!*list) return 0;
    while ((list = strchr(list, ','))) list++, count++;
    return count < DEVICES ? count : DEVICES;
}

/* The value FAKE_CUDA has for this call, or NULL. `where` is the condition a copy is asked with, else NULL. */
static const char *planned(const char *call, const char *where) {
    static char value[64];
    const char *plan = getenv("FAKE_CUDA"), *devices = getenv("CUDA_VISIBLE_DEVICES");
    for (size_t size = strlen(call); plan && *plan;) {
        size_t length = strcspn(plan, ";");
        const char *equals = memchr(plan, '=', length);
        if (equals && !strncmp(plan, call, size) && (plan[size] == '=' || plan[size] == '@')) {
            char condition[64] = "";
            if (plan[size] == '@') snprintf(condition, sizeof condition, "%.*s", (int)(equals - plan - size - 1), plan + size + 1);
            int fits = !*condition || (where && !strcmp(where, condition)) || (devices && strstr(devices, condition));
            if (fits) {
                snprintf(value, sizeof value, "%.*s", (int)(plan + length - equals - 1), equals + 1);
                return value;
            }
        }
        plan += length + (plan[length] == ';');
    }
    return NULL;
}

static Result act(const char *value) {
    if (!value || *value == '#') return SUCCESS;
    if (!strcmp(value, "hang")) for (;;) pause();
    if (!strcmp(value, "abort")) abort();
    if (!strcmp(value, "segv")) raise(SIGSEGV);
    if (!strcmp(value, "exit")) _exit(7);
    if (!strcmp(value, "corrupt")) return CORRUPT;
    return atoi(value);
}

static long number(const char *call, long usual) {
    const char *value = planned(call, NULL);
    return value && *value == '#' ? atol(value + 1) : usual;
}

#define ACT(call) do { Result planned_ = act(planned(call, NULL)); if (planned_ > 0) return planned_; } while (0)
#define STARTED(call) do { ACT(call); if (!started) return NOT_INITIALIZED; } while (0)
#define IN_CONTEXT(call) do { STARTED(call); if (current < 0) return INVALID_CONTEXT; } while (0)

Result cuInit(unsigned flags) {
    ACT("cuInit");
    if (flags) return INVALID_VALUE;
    if (!visible()) return NO_DEVICE;
    started = 1;
    return SUCCESS;
}

Result cuDriverGetVersion(int *version) {
    ACT("cuDriverGetVersion");
    *version = (int)number("cuDriverGetVersion", 13000);
    return SUCCESS;
}

Result cuDeviceGetCount(int *count) {
    STARTED("cuDeviceGetCount");
    *count = (int)number("cuDeviceGetCount", visible());
    return SUCCESS;
}

Result cuDeviceGet(int *device, int ordinal) {
    STARTED("cuDeviceGet");
    if (ordinal < 0 || ordinal >= visible()) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    char call[64];
    snprintf(call, sizeof call, "cuDeviceGetAttribute.%d", attribute);
    STARTED(call);
    if (device < 0 || device >= visible()) return INVALID_DEVICE;
    *value = (int)number(call, attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 0);
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(void **context, int device) {
    STARTED("cuDevicePrimaryCtxRetain");
    if (device < 0 || device >= visible()) return INVALID_DEVICE;
    retained[device]++;
    *context = &contexts[device];
    return SUCCESS;
}

Result cuCtxSetCurrent(void *context) {
    STARTED("cuCtxSetCurrent");
    long device = (char *)context - contexts;
    if (device < 0 || device >= DEVICES || !retained[device]) return INVALID_CONTEXT;
    current = (int)device;
    return SUCCESS;
}

Result cuCtxSynchronize(void) {
    IN_CONTEXT("cuCtxSynchronize");
    return SUCCESS;
}

Result cuMemGetInfo_v2(size_t *available, size_t *total) {
    IN_CONTEXT("cuMemGetInfo_v2");
    *total = (size_t)80 << 30;
    *available = (size_t)number("cuMemGetInfo_v2", 79L << 30);
    return SUCCESS;
}

Result cuMemAlloc_v2(uint64_t *place, size_t size) {
    IN_CONTEXT("cuMemAlloc_v2");
    void *memory = malloc(size);
    if (!memory) return OUT_OF_MEMORY;
    *place = (uint64_t)(uintptr_t)memory;
    return SUCCESS;
}

Result cuMemFree_v2(uint64_t place) {
    IN_CONTEXT("cuMemFree_v2");
    free((void *)(uintptr_t)place);
    return SUCCESS;
}

Result cuMemsetD32_v2(uint64_t place, unsigned value, size_t count) {
    IN_CONTEXT("cuMemsetD32_v2");
    for (uint32_t *word = (uint32_t *)(uintptr_t)place; count--;) *word++ = value;
    return SUCCESS;
}

Result cuMemcpyHtoD_v2(uint64_t place, const void *host, size_t size) {
    IN_CONTEXT("cuMemcpyHtoD_v2");
    memcpy((void *)(uintptr_t)place, host, size);
    return SUCCESS;
}

Result cuMemcpyDtoH_v2(void *host, uint64_t place, size_t size) {
    IN_CONTEXT("cuMemcpyDtoH_v2");
    memcpy(host, (void *)(uintptr_t)place, size);
    if (act(planned("cuMemcpyDtoH_v2", NULL)) == CORRUPT) ((char *)host)[size / 3] ^= 4;
    return SUCCESS;
}

Result cuDeviceCanAccessPeer(int *can, int device, int peer) {
    STARTED("cuDeviceCanAccessPeer");
    *can = device != peer && number("cuDeviceCanAccessPeer", 1);
    return SUCCESS;
}

Result cuCtxEnablePeerAccess(void *context, unsigned flags) {
    IN_CONTEXT("cuCtxEnablePeerAccess");
    (void)context;
    return flags ? INVALID_VALUE : SUCCESS;
}

Result cuMemcpyPeer(uint64_t target, void *target_context, uint64_t source, void *source_context, size_t size) {
    char where[16];
    int from = (int)((char *)source_context - contexts), to = (int)((char *)target_context - contexts);
    snprintf(where, sizeof where, "%d>%d", from, to);
    if (!started) return NOT_INITIALIZED;
    Result result = act(planned("cuMemcpyPeer", where));
    if (result > 0) return result;
    memcpy((void *)(uintptr_t)target, (void *)(uintptr_t)source, size);
    if (result == CORRUPT) ((char *)(uintptr_t)target)[size / 5] ^= 1;
    return SUCCESS;
}

Result cuGetErrorName(int code, const char **name) {
    static const struct { int code; const char *name; } names[] = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {34, "CUDA_ERROR_STUB_LIBRARY"}, {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"}, {999, "CUDA_ERROR_UNKNOWN"}, {4242, "CUDA_ERROR_BRAND_NEW"},
    };
    *name = NULL;
    for (size_t place = 0; place < sizeof names / sizeof *names; place++)
        if (names[place].code == code) *name = names[place].name;
    return *name ? SUCCESS : INVALID_VALUE;
}
