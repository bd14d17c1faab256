/*
 * A libnvidia-ml.so.1 without a GPU: it answers from the description file that FAKE_NVML names.
 *
 *     driver.version = 580.65.06              # key = value, one a line; '#' starts a comment
 *     count = 8
 *     *.name = NVIDIA H100 80GB HBM3          # all GPUs
 *     4..7.temperature = 33                   # GPUs 4 to 7
 *     3.temperature = 41                      # one GPU; the more specific key wins, of equal ones the later line
 *     *-*.p2p_read = 0                        # pairs of GPUs, in either order
 *     2.nvlink.5.state = 0                    # link 5 of GPU 2
 *
 * Any value may be a fault instead:  !15  returns that NVML error, abort  kills the process, ~500 41  sleeps 500 ms and
 * then answers 41 (~500 !15 and ~500 abort work too; ~500 alone goes on as if the key were missing). A missing key is
 * NVML_ERROR_NOT_SUPPORTED, so a description lists what its board supports. Four keys stand for no single fact:
 *
 *     init          what nvmlInit does (missing: it succeeds)
 *     N.handle      what nvmlDeviceGetHandleByIndex does for GPU N (missing: it succeeds)
 *     N.every       a fault of every other call about GPU N:  3.every = !15
 *     N.after       the same after so many calls:  3.after = 40 !15
 *     N.nvlinks     how many NVLinks the board has; from there on NVML_ERROR_INVALID_ARGUMENT
 *
 * A description that is replaced by another one counts from the next call about a GPU on.
 *
 * The keys of all other facts stand beside the functions below. Layouts and numbers are those of nvml.h version 13.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { MISSING = -1, SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE };
enum { ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { MAX_LINES = 8192, MAX_GPUS = 64, MAX_INSTANCES = 8 };
enum { VALUE_UNSIGNED_INT = 1, VALUE_UNSIGNED_LONG_LONG = 3 };
enum { FABRIC_INFO_V2 = 0x02000024, FABRIC_INFO_V3 = 0x03000028, MEMORY_V2 = 0x02000028 };
enum { SRAM_STATUS_V1 = 0x01000068, REPAIR_STATUS_V1 = 0x0100000C };
#define NOT_AVAILABLE UINT64_MAX

typedef int Return; /* nvmlReturn_t */
typedef unsigned long long Number;

/* ---- Handles: an address inside this table. Instance 0 is the GPU itself, 1 to 7 are its MIG instances. */

typedef const char *Device; /* nvmlDevice_t */
static const char table[MAX_GPUS][MAX_INSTANCES];

static int gpu_of(Device device) { return (int)((device - table[0]) / MAX_INSTANCES); }
static int instance_of(Device device) { return (int)((device - table[0]) % MAX_INSTANCES); }
static int is_handle(Device device) { return device >= table[0] && device < table[0] + sizeof table; }

/* ---- The description: every line, as written. */

static struct { char *key, *value; } lines[MAX_LINES];
static int line_count, started;
static long calls[MAX_GPUS]; /* about each GPU, so far */

static char *trimmed(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    for (char *end = text + strlen(text); end > text && strchr(" \t\r\n", end[-1]); *--end = '\0') {}
    return text;
}

static struct stat described; /* the file that was read */

static Return read_description(void) {
    const char *path = getenv("FAKE_NVML");
    if (path) stat(path, &described);
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        fprintf(stderr, "fake NVML: cannot read FAKE_NVML=%s\n", path ? path : "");
        return UNKNOWN;
    }
    while (line_count > 0) free(lines[--line_count].key);
    memset(calls, 0, sizeof calls);
    char line[4096];
    while (fgets(line, sizeof line, file) && line_count < MAX_LINES) {
        line[strcspn(line, "#")] = '\0';
        char *copy = strdup(trimmed(line));
        char *equals = copy ? strchr(copy, '=') : NULL;
        if (!equals) {
            free(copy);
            continue;
        }
        *equals = '\0';
        trimmed(copy);
        lines[line_count].key = copy;
        lines[line_count++].value = trimmed(equals + 1);
    }
    fclose(file);
    return SUCCESS;
}

/* Read it again when another file has taken its place. */
static void follow_description(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    if (path && stat(path, &now) == 0 && now.st_ino != described.st_ino) read_description();
}

/* How well the pattern at *at ("*", "2..5" or "3") fits the number: 0 to 2, or -1 for not at all. Moves *at past it. */
static int fit_number(const char **at, int number) {
    char *end;
    if (**at == '*') return ++*at, 0;
    long first = strtol(*at, &end, 10), last = first;
    if (end == *at) return -1;
    int exact = strncmp(end, "..", 2) != 0;
    if (!exact) last = strtol(end + 2, &end, 10);
    *at = end;
    return number >= first && number <= last ? 1 + exact : -1;
}

/* How well a key of the description fits the wanted one, in which each '#' stands for the next of the numbers. */
static int fit(const char *key, const char *wanted, const int *numbers) {
    int score = 0;
    for (; *wanted; wanted++) {
        if (*wanted != '#') {
            if (*key++ != *wanted) return -1;
            continue;
        }
        int step = fit_number(&key, *numbers++);
        if (step < 0) return -1;
        score += step;
    }
    return *key ? -1 : score;
}

static const char *find(const char *wanted, int a, int b) {
    const int straight[] = {a, b}, crossed[] = {b, a};
    const int is_pair = strncmp(wanted, "#-#", 3) == 0;
    const char *value = NULL;
    for (int i = 0, best = 0; i < line_count; i++) {
        int score = fit(lines[i].key, wanted, straight);
        if (is_pair && score < 0) score = fit(lines[i].key, wanted, crossed);
        if (score >= best) best = score, value = lines[i].value;
    }
    return value;
}

/* ---- Answers: a fault is acted out here; what is left is the value, NULL with an error. */

static Return act(const char *text, const char **value) {
    char *rest;
    *value = NULL;
    if (text && *text == '~') {
        long milliseconds = strtol(text + 1, &rest, 10);
        struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
        nanosleep(&pause, NULL);
        text = trimmed(rest);
    }
    if (!text || !*text) return MISSING;
    if (*text == '!') return atoi(text + 1);
    if (strcmp(text, "abort") == 0) abort();
    *value = text;
    return SUCCESS;
}

/* A key that only carries faults: success unless it has one. */
static Return fault(const char *wanted, int a, int b) {
    const char *ignored;
    Return result = act(find(wanted, a, b), &ignored);
    return result == MISSING ? SUCCESS : result;
}

static Return answer(const char *wanted, int a, int b, const char **value) {
    *value = NULL;
    if (!started) return UNINITIALIZED;
    Return result = act(find(wanted, a, b), value);
    return result == MISSING ? NOT_SUPPORTED : result;
}

/* Whether calls about this GPU get through at all. */
static Return reach(Device device) {
    if (!started) return UNINITIALIZED;
    if (!is_handle(device)) return INVALID_ARGUMENT;
    follow_description();
    const char *after = find("#.after", gpu_of(device), 0), *ignored;
    char *rest;
    if (after && ++calls[gpu_of(device)] > strtol(after, &rest, 10)) return act(trimmed(rest), &ignored);
    return fault("#.every", gpu_of(device), 0);
}

/* An answer about one GPU; `number` is that of its link, field or MIG slot where `wanted` has a second '#'. */
static Return about(Device device, const char *wanted, int number, const char **value) {
    Return result = reach(device);
    *value = NULL;
    return result == SUCCESS ? answer(wanted, gpu_of(device), number, value) : result;
}

/* Up to `count` numbers: decimal or 0x…, with MiB or GiB, separated by anything else. Those not written become 0. */
static void read_numbers(const char *text, int count, Number *out) {
    for (int i = 0; i < count; i++) {
        char *end;
        while (*text && (*text < '0' || *text > '9')) text++;
        out[i] = strtoull(text, &end, 0);
        if (strncmp(end, "MiB", 3) == 0) out[i] <<= 20;
        if (strncmp(end, "GiB", 3) == 0) out[i] <<= 30;
        text = end;
    }
}

static Return numbers(Device device, const char *wanted, int number, int count, Number *out) {
    const char *value;
    Return result = about(device, wanted, number, &value);
    if (result == SUCCESS) read_numbers(value, count, out);
    return result;
}

static Return copied(Return result, const char *value, char *out, unsigned size) {
    if (result != SUCCESS) return result;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* ---- Init and the driver. Keys: init, driver.version, driver.nvml_version, driver.cuda_version, count */

Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    Return result = read_description();
    if (result == SUCCESS) result = fault("init", 0, 0);
    started = result == SUCCESS;
    return result;
}
Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Return nvmlInit(void) { return nvmlInitWithFlags(0); } /* the name torch looks up */

Return nvmlShutdown(void) {
    if (!started) return UNINITIALIZED;
    started = 0;
    return SUCCESS;
}

const char *nvmlErrorString(Return result) {
    static char words[48];
    snprintf(words, sizeof words, "fake NVML error %d", result);
    return words;
}

static Return system_text(const char *key, char *out, unsigned size) {
    const char *value;
    Return result = answer(key, 0, 0, &value);
    return copied(result, value, out, size);
}
Return nvmlSystemGetDriverVersion(char *out, unsigned size) { return system_text("driver.version", out, size); }
Return nvmlSystemGetNVMLVersion(char *out, unsigned size) { return system_text("driver.nvml_version", out, size); }

static Return system_number(const char *key, int *out) {
    const char *value;
    Return result = answer(key, 0, 0, &value);
    if (result == SUCCESS) *out = atoi(value);
    return result;
}
Return nvmlSystemGetCudaDriverVersion(int *out) { return system_number("driver.cuda_version", out); }
Return nvmlSystemGetCudaDriverVersion_v2(int *out) { return system_number("driver.cuda_version", out); }
Return nvmlDeviceGetCount_v2(unsigned *out) { return system_number("count", (int *)out); }

/* ---- Handles. Keys: N.handle, N.mig.I.uuid for the slots 0 to 6 that hold an instance */

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *out) {
    int count;
    Return result = system_number("count", &count);
    if (result != SUCCESS) return result;
    if (index >= (unsigned)count || index >= MAX_GPUS) return INVALID_ARGUMENT;
    *out = table[index];
    return fault("#.handle", (int)index, 0);
}

Return nvmlDeviceGetIndex(Device device, unsigned *out) {
    if (!started) return UNINITIALIZED;
    if (!is_handle(device)) return INVALID_ARGUMENT;
    *out = (unsigned)gpu_of(device);
    return SUCCESS;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *out) {
    const char *value;
    if (index >= MAX_INSTANCES - 1) return INVALID_ARGUMENT;
    Return result = about(device, "#.mig.#.uuid", (int)index, &value);
    if (result == SUCCESS) *out = table[gpu_of(device)] + 1 + index;
    return result == NOT_SUPPORTED ? NOT_FOUND : result;
}

/* ---- One text of a GPU. Keys: uuid, name, serial, vbios, gsp_firmware */

static Return gpu_text(Device device, const char *wanted, int number, char *out, unsigned size) {
    const char *value;
    Return result = about(device, wanted, number, &value);
    return copied(result, value, out, size);
}
Return nvmlDeviceGetName(Device device, char *out, unsigned size) { return gpu_text(device, "#.name", 0, out, size); }
Return nvmlDeviceGetUUID(Device device, char *out, unsigned size) {
    int instance = is_handle(device) ? instance_of(device) : 0;
    return gpu_text(device, instance ? "#.mig.#.uuid" : "#.uuid", instance - 1, out, size);
}
Return nvmlDeviceGetSerial(Device device, char *out, unsigned size) {
    return gpu_text(device, "#.serial", 0, out, size);
}
Return nvmlDeviceGetVbiosVersion(Device device, char *out, unsigned size) {
    return gpu_text(device, "#.vbios", 0, out, size);
}
Return nvmlDeviceGetGspFirmwareVersion(Device device, char *out) {
    return gpu_text(device, "#.gsp_firmware", 0, out, 64);
}

/* ---- One number of a GPU: the key is the second argument; power is in milliwatts, clock_event_reasons a bit mask. */

#define NUMBER(function, key, type)                         \
    Return function(Device device, type *out) {             \
        Number value;                                       \
        Return result = numbers(device, key, 0, 1, &value); \
        if (result == SUCCESS) *out = (type)value;          \
        return result;                                      \
    }
NUMBER(nvmlDeviceGetPowerUsage, "#.power", unsigned)
NUMBER(nvmlDeviceGetPowerManagementLimit, "#.power_limit", unsigned)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "#.power_limit_default", unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "#.power_limit", unsigned)
NUMBER(nvmlDeviceGetFanSpeed, "#.fan_percent", unsigned)
NUMBER(nvmlDeviceGetPersistenceMode, "#.persistence_mode", unsigned)
NUMBER(nvmlDeviceGetComputeMode, "#.compute_mode", unsigned)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "#.mig.max", unsigned)
NUMBER(nvmlDeviceGetMinorNumber, "#.minor", unsigned)
NUMBER(nvmlDeviceGetVirtualizationMode, "#.virtualization", unsigned)
NUMBER(nvmlDeviceGetPerformanceState, "#.performance_state", unsigned)
NUMBER(nvmlDeviceGetDisplayActive, "#.display_active", unsigned)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "#.retired_pages_pending", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "#.pcie_width", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "#.pcie_width_max", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "#.pcie_generation", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "#.pcie_generation_max", unsigned)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "#.pcie_generation_max_gpu", unsigned)

/* What the first reading says and no later one: clock_event_reasons_once. */
static Return clock_event_reasons(Device device, Number *out) {
    static int asked[MAX_GPUS];
    if (is_handle(device) && !asked[gpu_of(device)]++)
        if (numbers(device, "#.clock_event_reasons_once", 0, 1, out) == SUCCESS) return SUCCESS;
    return numbers(device, "#.clock_event_reasons", 0, 1, out);
}
Return nvmlDeviceGetCurrentClocksEventReasons(Device device, Number *out) { return clock_event_reasons(device, out); }
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, Number *out) {
    return clock_event_reasons(device, out);
}

/* ---- Several numbers of a GPU. Keys and their values:
 * compute_capability = 9.0   utilization = gpu memory   ecc = current pending   mig = current pending
 * rows_remapped = corrected uncorrected pending failed   rows_spare = banks with all, most, some, few, no spare rows
 * repair = of a memory channel, of a TPC (1: waits for a reset) */

static Return several(Device device, const char *wanted, int count, unsigned *const out[]) {
    Number found[5];
    Return result = numbers(device, wanted, 0, count, found);
    for (int i = 0; result == SUCCESS && i < count; i++) *out[i] = (unsigned)found[i];
    return result;
}
#define SEVERAL(device, wanted, count, ...) several(device, wanted, count, (unsigned *const[]){__VA_ARGS__})

Return nvmlDeviceGetCudaComputeCapability(Device device, unsigned *major, unsigned *minor) {
    return SEVERAL(device, "#.compute_capability", 2, major, minor);
}
Return nvmlDeviceGetUtilizationRates(Device device, unsigned out[2]) {
    return SEVERAL(device, "#.utilization", 2, &out[0], &out[1]);
}
Return nvmlDeviceGetEccMode(Device device, unsigned *current, unsigned *pending) {
    return SEVERAL(device, "#.ecc", 2, current, pending);
}
Return nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    return SEVERAL(device, "#.mig", 2, current, pending);
}
Return nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
    return SEVERAL(device, "#.rows_remapped", 4, corrected, uncorrected, pending, failed);
}

Return nvmlDeviceGetRowRemapperHistogram(Device device, unsigned out[5]) {
    return SEVERAL(device, "#.rows_spare", 5, &out[0], &out[1], &out[2], &out[3], &out[4]);
}
typedef struct { unsigned version, channel, tpc; } RepairStatus;
Return nvmlDeviceGetRepairStatus(Device device, RepairStatus *out) {
    if (out->version != REPAIR_STATUS_V1) return ARGUMENT_VERSION_MISMATCH;
    return SEVERAL(device, "#.repair", 2, &out->channel, &out->tpc);
}

/* ---- Memory. Keys: memory (the total, and faults of the calls), memory_used, and memory_reserved as part of it;
 * bar1 (the total), bar1_used */

Return nvmlDeviceGetMemoryInfo(Device device, Number out[3]) { /* total, free, used */
    Return result = numbers(device, "#.memory", 0, 1, &out[0]);
    if (result == SUCCESS) result = numbers(device, "#.memory_used", 0, 1, &out[2]);
    if (result == SUCCESS) out[1] = out[0] - out[2];
    return result;
}

typedef struct { unsigned version; Number total, reserved, free, used; } MemoryV2;
Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *out) {
    Number v1[3], reserved;
    if (out->version != MEMORY_V2) return ARGUMENT_VERSION_MISMATCH;
    Return result = nvmlDeviceGetMemoryInfo(device, v1);
    if (result != SUCCESS) return result;
    if (numbers(device, "#.memory_reserved", 0, 1, &reserved) != SUCCESS) reserved = 0;
    out->total = v1[0], out->reserved = reserved, out->free = v1[1], out->used = v1[2] - reserved;
    return SUCCESS;
}

Return nvmlDeviceGetBAR1MemoryInfo(Device device, Number out[3]) { /* total, free, used */
    Return result = numbers(device, "#.bar1", 0, 1, &out[0]);
    if (result == SUCCESS) result = numbers(device, "#.bar1_used", 0, 1, &out[2]);
    if (result == SUCCESS) out[1] = out[0] - out[2];
    return result;
}

/* ---- What became of the memory. Keys: unrepairable (1: yes), as nvml.h has it, or unrepairable_after_version, with the
 * version that pynvml puts first; sram_exceeded (only root may ask; !4 for others); inforom = valid, or a fault */

Return nvmlDeviceGetUnrepairableMemoryFlag_v1(Device device, unsigned out[2]) {
    Return result = SEVERAL(device, "#.unrepairable_after_version", 1, &out[1]);
    return result == NOT_SUPPORTED ? SEVERAL(device, "#.unrepairable", 1, &out[0]) : result;
}

typedef struct { unsigned version; Number counters[11]; unsigned exceeded; } SramStatus;
Return nvmlDeviceGetSramEccErrorStatus(Device device, SramStatus *out) {
    if (out->version != SRAM_STATUS_V1) return ARGUMENT_VERSION_MISMATCH;
    memset(out->counters, 0, sizeof out->counters);
    return SEVERAL(device, "#.sram_exceeded", 1, &out->exceeded);
}

Return nvmlDeviceValidateInforom(Device device) {
    const char *value;
    return about(device, "#.inforom", 0, &value);
}

/* ---- Numbers with an argument. Keys: temperature, temperature.T (0 shutdown, 1 slowdown, 2 of the memory, 3 highest to
 * operate at), temperature_margin (may be negative), ecc_errors.corrected.C and ecc_errors.uncorrected.C (C: 0 volatile,
 * 1 aggregate), clock.K, clock_max.K, application_clock.K, application_clock_default.K (K: 0 graphics, 1 SM, 2 memory) */

static Return one(Device device, const char *wanted, int number, unsigned *out) {
    Number value;
    Return result = numbers(device, wanted, number, 1, &value);
    if (result == SUCCESS) *out = (unsigned)value;
    return result;
}

Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *out) {
    return sensor == 0 ? one(device, "#.temperature", 0, out) : INVALID_ARGUMENT;
}
typedef struct { unsigned version, sensor; unsigned temperature; } TemperatureV1;
Return nvmlDeviceGetTemperatureV(Device device, TemperatureV1 *out) {
    return nvmlDeviceGetTemperature(device, out->sensor, &out->temperature);
}
Return nvmlDeviceGetTemperatureThreshold(Device device, unsigned threshold, unsigned *out) {
    return one(device, "#.temperature.#", (int)threshold, out);
}
typedef struct { unsigned version; int margin; } Margin;
Return nvmlDeviceGetMarginTemperature(Device device, Margin *out) {
    const char *value;
    Return result = about(device, "#.temperature_margin", 0, &value);
    if (result == SUCCESS) out->margin = atoi(value);
    return result;
}
Return nvmlDeviceGetClockInfo(Device device, unsigned clock, unsigned *out) {
    return one(device, "#.clock.#", (int)clock, out);
}
Return nvmlDeviceGetMaxClockInfo(Device device, unsigned clock, unsigned *out) {
    return one(device, "#.clock_max.#", (int)clock, out);
}
Return nvmlDeviceGetApplicationsClock(Device device, unsigned clock, unsigned *out) {
    return one(device, "#.application_clock.#", (int)clock, out);
}
Return nvmlDeviceGetDefaultApplicationsClock(Device device, unsigned clock, unsigned *out) {
    return one(device, "#.application_clock_default.#", (int)clock, out);
}
Return nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned counter, Number *out) {
    return numbers(device, type ? "#.ecc_errors.uncorrected.#" : "#.ecc_errors.corrected.#", (int)counter, 1, out);
}

/* ---- PCI. Keys: pci, and nvlink.L.remote_pci, as NVML writes them: 00000000:1B:00.0 */

typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} PciInfo;

static Return pci_info(Return result, const char *value, PciInfo *out) {
    if (result != SUCCESS) return result;
    memset(out, 0, sizeof *out);
    sscanf(value, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->id, sizeof out->id, "%s", value);
    snprintf(out->legacy_id, sizeof out->legacy_id, "%.12s", strlen(value) == 16 ? value + 4 : value);
    out->device_id = 0x10de; /* low half: the vendor */
    return SUCCESS;
}

Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo *out) {
    const char *value;
    Return result = about(device, "#.pci", 0, &value);
    return pci_info(result, value, out);
}

/* ---- The CPUs near a GPU, as the kernel writes CPU lists. Key: cpus = 0-31,64-95 */

Return nvmlDeviceGetCpuAffinity(Device device, unsigned words, unsigned long *out) {
    const char *value;
    Return result = about(device, "#.cpus", 0, &value);
    if (result != SUCCESS) return result;
    memset(out, 0, words * sizeof *out);
    for (char *at = (char *)value; *at; at += *at == ',') {
        unsigned long first = strtoul(at, &at, 10), last = first;
        if (*at == '-') last = strtoul(at + 1, &at, 10);
        else if (*at && *at != ',') return UNKNOWN;
        for (unsigned long cpu = first; cpu <= last && cpu < 64UL * words; cpu++) out[cpu / 64] |= 1UL << cpu % 64;
    }
    return SUCCESS;
}

/* ---- Field values: each carries a return code of its own. Keys: field.ID (230 is the recovery action, 82 the memory's
 * temperature, 94 PCIe replays, 29 and 30 retired pages); nvlink.L.speed, replays, recoveries, crc_errors, and from
 * NVLink 5 on rcv_errors, recovery_events; fields for a fault of the whole call */

typedef struct {
    unsigned field, scope;
    int64_t timestamp, latency;
    unsigned type;
    Return result;
    union { unsigned ui; Number ull; } value;
} FieldValue;

static const char *link_field(unsigned field) { /* NVML_FI_DEV_NVLINK_…: of the link that the scope names */
    switch (field) {
    case 161: return "#.nvlink.#.replays";
    case 162: return "#.nvlink.#.recoveries";
    case 163: return "#.nvlink.#.crc_errors";
    case 164: return "#.nvlink.#.speed";
    case 208: return "#.nvlink.#.rcv_errors";
    case 215: return "#.nvlink.#.recovery_events";
    default: return NULL;
    }
}

Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    Return result = reach(device);
    if (result == SUCCESS) result = fault("#.fields", gpu_of(device), 0);
    if (result != SUCCESS) return result;
    for (int i = 0; i < count; i++) {
        Number value = 0;
        const char *of_link = link_field(values[i].field);
        int number = (int)(of_link ? values[i].scope : values[i].field);
        values[i].result = numbers(device, of_link ? of_link : "#.field.#", number, 1, &value);
        values[i].type = of_link ? VALUE_UNSIGNED_LONG_LONG : VALUE_UNSIGNED_INT;
        values[i].value.ull = value;
    }
    return SUCCESS;
}

/* ---- The NVSwitch fabric. Keys: fabric = state status, and, of a domain over several nodes, fabric_cluster (32 hex
 * digits), fabric_clique; fabric_health (bit mask). C2C: c2c = 1 */

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    Return status;
    unsigned clique, state, health_mask;
} FabricInfo;

Return nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfo *out) {
    Number n[2];
    Return result = numbers(device, "#.fabric", 0, 2, n);
    if (result != SUCCESS) return result;
    if (out->version != FABRIC_INFO_V2 && out->version != FABRIC_INFO_V3) return ARGUMENT_VERSION_MISMATCH;
    const char *digits;
    Number clique = 0, health = 0;
    if (numbers(device, "#.fabric_clique", 0, 1, &clique) != SUCCESS) clique = 0;
    if (numbers(device, "#.fabric_health", 0, 1, &health) != SUCCESS) health = 0;
    out->state = (unsigned)n[0], out->status = (Return)n[1];
    out->clique = (unsigned)clique, out->health_mask = (unsigned)health;
    memset(out->cluster, 0, sizeof out->cluster);
    if (about(device, "#.fabric_cluster", 0, &digits) == SUCCESS)
        for (int i = 0; i < 16 && sscanf(digits + 2 * i, "%2hhx", &out->cluster[i]) == 1; i++) {}
    return SUCCESS;
}

NUMBER(nvmlDeviceGetC2cModeInfoV, "#.c2c", unsigned)

/* ---- NVLinks. Keys: nvlinks, nvlink.L.state (1: active), nvlink.L.remote (0 GPU, 1 other, 2 switch),
 * nvlink.L.remote_pci */

static Return about_link(Device device, const char *wanted, unsigned link, const char **value) {
    const char *count;
    *value = NULL;
    Return result = about(device, "#.nvlinks", 0, &count);
    if (result != SUCCESS) return result;
    return link < (unsigned)atoi(count) ? about(device, wanted, (int)link, value) : INVALID_ARGUMENT;
}
static Return link_number(Device device, const char *wanted, unsigned link, unsigned *out) {
    const char *value;
    Return result = about_link(device, wanted, link, &value);
    if (result == SUCCESS) *out = (unsigned)atoi(value);
    return result;
}
Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *out) {
    return link_number(device, "#.nvlink.#.state", link, out);
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *out) {
    return link_number(device, "#.nvlink.#.remote", link, out);
}
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *out) {
    const char *value;
    Return result = about_link(device, "#.nvlink.#.remote_pci", link, &value);
    return pci_info(result, value, out);
}

/* ---- Processes. Keys: compute_processes, graphics_processes = none, or PID:MEMORY … with ? for memory not known, or a
 * lone number: a count that is never satisfied */

typedef struct { unsigned pid; Number memory; unsigned gpu_instance, compute_instance; } Process;

static Return processes(Device device, const char *wanted, unsigned *count, Process *out) {
    const char *value;
    Return result = about(device, wanted, 0, &value);
    if (result != SUCCESS) return result;
    unsigned room = *count, found = 0;
    if (*value >= '0' && *value <= '9' && !strchr(value, ':')) {
        *count = (unsigned)strtoul(value, NULL, 10);
        return INSUFFICIENT_SIZE;
    }
    for (const char *at = value; (at = strchr(at, ':')); at++, found++) {
        const char *pid = at;
        while (pid > value && pid[-1] >= '0' && pid[-1] <= '9') pid--;
        if (!out || found >= room) continue;
        out[found] = (Process){(unsigned)strtoul(pid, NULL, 10), NOT_AVAILABLE, UINT32_MAX, UINT32_MAX};
        if (at[1] != '?') read_numbers(at + 1, 1, &out[found].memory);
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *out) {
    return processes(device, "#.compute_processes", count, out);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Process *out) {
    return processes(device, "#.graphics_processes", count, out);
}

/* ---- Pairs of GPUs. Keys: A-B.topology (0, 10 … 50), A-B.p2p_read, p2p_write, p2p_nvlink, p2p_atomics, p2p_pci */

static Return about_pair(Device one, Device other, const char *wanted, unsigned *out) {
    const char *value;
    Return result = reach(one);
    if (result == SUCCESS) result = reach(other);
    if (result == SUCCESS) result = answer(wanted, gpu_of(one), gpu_of(other), &value);
    if (result == SUCCESS) *out = (unsigned)atoi(value);
    return result;
}
Return nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned *out) {
    return about_pair(one, other, "#-#.topology", out);
}
Return nvmlDeviceGetP2PStatus(Device one, Device other, unsigned index, unsigned *out) {
    static const char *const keys[] = {"#-#.p2p_read", "#-#.p2p_write", "#-#.p2p_nvlink", "#-#.p2p_atomics",
                                       "#-#.p2p_pci"};
    return index < sizeof keys / sizeof *keys ? about_pair(one, other, keys[index], out) : INVALID_ARGUMENT;
}
