// Results of the driver's functions that the test driver returns, with the names and texts of the real one, and the codes of NVML.
#pragma once
#include <cstdint>
#include <cstring>

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
};

struct ResultText {
    int code;
    const char* name;
    const char* text;
    // Whether every later call in the context returns it too.
    bool ends_context;
};

constexpr ResultText RESULTS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error", false},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument", false},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", false},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error", false},
    {DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down", false},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable", false},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected", false},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal", false},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid", false},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context", false},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device", false},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered", true},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed", false},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle", false},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found", false},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready", false},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered", true},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch", false},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated", true},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered", true},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error", true},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered", true},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", true},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space", true},
    {718, "CUDA_ERROR_INVALID_PC", "invalid program counter", true},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure", true},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported", false},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error", false},
};

inline const ResultText* text_of(int code) {
    for (const ResultText& result : RESULTS) {
        if (result.code == code) return &result;
    }
    return nullptr;
}

// Codes of NVML, with its texts.
enum NvmlCode {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
};

struct NvmlText {
    int code;
    const char* text;
};

constexpr NvmlText NVML_TEXTS[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_UNINITIALIZED, "Uninitialized"},
    {NVML_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_NOT_SUPPORTED, "Not Supported"},
    {4, "Insufficient Permissions"},
    {NVML_NOT_FOUND, "Not Found"},
    {NVML_INSUFFICIENT_SIZE, "Insufficient Size"},
    {9, "Driver Not Loaded"},
    {NVML_TIMEOUT, "Timeout"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {NVML_GPU_IS_LOST, "GPU is lost"},
    {16, "GPU requires reset"},
    {17, "The operating system has blocked the request."},
    {18, "RM has detected an NVML/RM version mismatch."},
    {20, "Insufficient Memory"},
    {25, "Argument version mismatch"},
    {999, "Unknown Error"},
};

inline bool is_of_nvml(int code) {
    for (const NvmlText& text : NVML_TEXTS) {
        if (text.code == code) return true;
    }
    return false;
}

// Why clocks are low: bits of NVML.
struct ThrottleReason {
    const char* name;
    uint64_t bit;
};

constexpr ThrottleReason THROTTLE_REASONS[] = {
    {"idle", 0x1}, {"cap", 0x4}, {"slowdown", 0x8}, {"thermal", 0x20}, {"hot", 0x40}, {"brake", 0x80},
};

// The instance of an event that is about a whole GPU.
constexpr uint32_t NO_INSTANCE = 0xFFFFFFFF;
// The instance of every slice of the test driver.
constexpr uint32_t OWN_INSTANCE = 7;
