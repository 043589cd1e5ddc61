// A `libnvrtc.so.13` for tests: texts are compiled by the machine's C++ compiler beside the emulator, to an image that the
// test driver loads. What was compiled once is kept in a folder beside this library, by its content.
//
// As strict as the real one: options that it does not know are refused, headers are those that are given, products and sums
// are contracted unless the options forbid it. Settings in TRAWL_TEST_COMPILER: `fault=FUNCTION:N:CODE`, as for the driver.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <map>
#include <mutex>

#include "image.h"
#include "settings.h"

extern char** environ;

namespace {

// No version of NVIDIA's: a cache of compiled kernels never takes one for the other.
constexpr int VERSION[2] = {13, 99};

enum Code { OK = 0, OUT_OF_HOST_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL = 11 };

struct Program {
    std::string name, text, log, image;
    std::map<std::string, std::string> headers;
};

std::mutex mutex;
std::map<std::string, uint64_t> calls;
std::map<void*, Program*> programs;

int called(const char* function) {
    static const Settings settings = settings_of(getenv("TRAWL_TEST_COMPILER"));
    std::lock_guard<std::mutex> guard(mutex);
    const uint64_t number = ++calls[function];
    for (const Fault& fault : settings.faults) {
        if (fault.function == function && number >= fault.first && number <= fault.last) return fault.code;
    }
    return OK;
}

#define CALLED \
    if (const int wanted = called(__func__)) return wanted

Program* program_of(void* handle) {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = programs.find(handle);
    return found == programs.end() ? nullptr : found->second;
}

std::string folder() {
    Dl_info info;
    dladdr((void*)program_of, &info);
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

std::string read(const std::string& path) {
    std::string text;
    if (FILE* file = fopen(path.c_str(), "rb")) {
        char some[65536];
        for (size_t got; (got = fread(some, 1, sizeof some, file)) > 0;) text.append(some, got);
        fclose(file);
    }
    return text;
}

// Under a name of its own first, so that others see a whole file or none.
bool write(const std::string& path, const std::string& text) {
    static std::atomic<unsigned> number;
    const std::string fresh = path + "." + std::to_string(getpid()) + "." + std::to_string(++number) + ".tmp";
    FILE* file = fopen(fresh.c_str(), "wb");
    if (!file) return false;
    const bool whole = fwrite(text.data(), 1, text.size(), file) == text.size();
    return fclose(file) == 0 && whole && rename(fresh.c_str(), path.c_str()) == 0;
}

std::string hash_of(const std::string& text) {
    char name[17];
    snprintf(name, sizeof name, "%016llx", (unsigned long long)Image::checksum_of(text.data(), text.size()));
    return name;
}

// Runs the C++ compiler; what it says goes to `log`.
bool compile(const std::vector<std::string>& arguments, const std::string& log) {
    const char* compiler = getenv("CXX");
    std::vector<std::string> all = {compiler && *compiler ? compiler : "c++"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> words;
    for (std::string& word : all) words.push_back(word.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        write(log, "the test compiler needs a C++ compiler, and '" + all[0] + "' does not run: " + strerror(failed) + "\n");
        return false;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A folder with the headers, which holds them and the emulator compiled in advance for the flags; made once.
std::string headers_of(const Program& program, const std::vector<std::string>& flags) {
    std::string all = read(folder() + "/emulator.h");
    for (const auto& [name, text] : program.headers) all += name + "\n" + text;
    for (const std::string& flag : flags) all += flag + "\n";
    const std::string made = folder() + "/headers-" + hash_of(all);
    static std::mutex one;
    std::lock_guard<std::mutex> guard(one);
    if (access((made + "/ready").c_str(), R_OK) == 0) return made;
    mkdir(made.c_str(), 0700);
    const int lock = open((made + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    flock(lock, LOCK_EX);
    if (access((made + "/ready").c_str(), R_OK) != 0) {
        // All but the last, which brings all and reads what the options define.
        std::string first = "#include \"" + folder() + "/emulator.h\"\n";
        for (const auto& [name, text] : program.headers) {
            write(made + "/" + name, text);
            if (text.find("TRAWL_BLOCKS") == std::string::npos) first += "#include \"" + name + "\"\n";
        }
        write(made + "/first.h", first);
        std::vector<std::string> arguments = flags;
        arguments.insert(arguments.end(), {"-I", made, "-x", "c++-header", made + "/first.h", "-o", made + "/first.h.gch"});
        if (!compile(arguments, made + "/log")) unlink((made + "/first.h.gch").c_str());
        write(made + "/ready", "");
    }
    close(lock);
    return made;
}

// What a text defines in its first lines: headers are compiled in advance with it.
std::vector<std::string> defined_first(const std::string& text) {
    static const std::string define = "#define ";
    std::vector<std::string> names;
    for (size_t at = 0; text.compare(at, define.size(), define) == 0;) {
        const size_t end = text.find('\n', at);
        if (end == std::string::npos) break;
        names.push_back(text.substr(at + define.size(), end - at - define.size()));
        at = end + 1;
    }
    return names;
}

// The number of threads that the text bounds a block to.
int threads_of(const std::string& text) {
    const char* word = "__launch_bounds__(";
    const size_t at = text.find(word);
    return at == std::string::npos ? 1024 : atoi(text.c_str() + at + strlen(word));
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
    CALLED;
    if (!major || !minor) return INVALID_INPUT;
    *major = VERSION[0], *minor = VERSION[1];
    return OK;
}

const char* nvrtcGetErrorString(int code) {
    switch (code) {
        case OK: return "NVRTC_SUCCESS";
        case OUT_OF_HOST_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
        case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

int nvrtcCreateProgram(void** handle, const char* text, const char* name, int count, const char* const* headers,
                       const char* const* names) {
    CALLED;
    if (!handle || !text || count < 0 || (count > 0 && (!headers || !names))) return INVALID_INPUT;
    auto* program = new Program;
    program->text = text;
    program->name = name ? name : "default_program";
    for (int i = 0; i < count; ++i) {
        if (strchr(names[i], '/')) return delete program, INVALID_INPUT;
        program->headers[names[i]] = headers[i];
    }
    std::lock_guard<std::mutex> guard(mutex);
    programs[program] = program;
    *handle = program;
    return OK;
}

int nvrtcDestroyProgram(void** handle) {
    CALLED;
    std::lock_guard<std::mutex> guard(mutex);
    auto found = handle ? programs.find(*handle) : programs.end();
    if (found == programs.end()) return INVALID_PROGRAM;
    delete found->second;
    programs.erase(found);
    *handle = nullptr;
    return OK;
}

int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
    CALLED;
    Program* program = program_of(handle);
    if (!program) return INVALID_PROGRAM;
    std::vector<std::string> flags = {"-O1", "-fPIC", "-fno-gnu-unique", "-w", "-ftrivial-auto-var-init=pattern"}, defines;
    int architecture = 0;
    bool contracts = true;
    std::string standard = "-std=c++17";
    for (int i = 0; i < count; ++i) {
        const std::string option = options[i];
        auto value = [&](const char* name) -> const char* {
            const size_t length = strlen(name);
            return option.compare(0, length, name) == 0 ? option.c_str() + length : nullptr;
        };
        if (const char* number = value("--gpu-architecture=sm_")) {
            architecture = atoi(number);
        } else if (const char* macro = value("--define-macro=")) {
            defines.push_back(std::string("-D") + macro);
        } else if (const char* name = value("--std=")) {
            standard = std::string("-std=") + name;
        } else if (const char* on = value("--fmad=")) {
            contracts = strcmp(on, "true") == 0;
        } else if (option != "--ptxas-options=-v" && option != "--no-source-include") {
            program->log = "nvrtc: error: unrecognized option " + option + " found";
            return INVALID_OPTION;
        }
    }
    if (architecture < 50) {
        program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)";
        return INVALID_OPTION;
    }
    flags.push_back(standard);
    flags.push_back(contracts ? "-ffp-contract=fast" : "-ffp-contract=off");
    if (contracts) flags.push_back("-mfma");
    for (const std::string& name : defined_first(program->text)) flags.push_back("-D" + name + "=");
    std::string key = program->text;
    for (const std::string& define : defines) key += define;
    const std::string headers = headers_of(*program, flags);
    const std::string kept = folder() + "/compiled";
    mkdir(kept.c_str(), 0700);
    static std::atomic<unsigned> number;
    const std::string path = kept + "/" + hash_of(key + headers) + ".so";
    std::string code = read(path);
    if (code.empty()) {
        // The text goes by its name in what the compiler says.
        const std::string own = kept + "/" + std::to_string(getpid()) + "." + std::to_string(++number);
        mkdir(own.c_str(), 0700);
        const std::string source = own + "/" + program->name, made = own + "/made.so", log = own + "/log";
        write(source, program->text);
        flags.insert(flags.end(), defines.begin(), defines.end());
        flags.insert(flags.end(), {"-shared", "-I", headers, "-include", "first.h", "-x", "c++", source, "-o", made});
        const bool compiled = compile(flags, log);
        if (compiled) rename(made.c_str(), path.c_str());
        program->log = read(log);
        unlink(source.c_str()), unlink(log.c_str()), unlink(made.c_str()), rmdir(own.c_str());
        if (!compiled) return COMPILATION;
        code = read(path);
    }
    Image head = {};
    memcpy(head.magic, IMAGE_MAGIC, sizeof head.magic);
    head.architecture = architecture;
    head.threads_max = threads_of(program->text);
    head.code_bytes = code.size();
    head.checksum = Image::checksum_of(code.data(), code.size());
    program->image.assign((const char*)&head, sizeof head);
    program->image += code;
    program->log += "info: compiled for the test driver's emulator, whose registers and spills are not known\n";
    return OK;
}

int nvrtcGetProgramLogSize(void* handle, size_t* bytes) {
    CALLED;
    Program* program = program_of(handle);
    if (!program) return INVALID_PROGRAM;
    *bytes = program->log.size() + 1;
    return OK;
}

int nvrtcGetProgramLog(void* handle, char* log) {
    CALLED;
    Program* program = program_of(handle);
    if (!program) return INVALID_PROGRAM;
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return OK;
}

int nvrtcGetCUBINSize(void* handle, size_t* bytes) {
    CALLED;
    Program* program = program_of(handle);
    if (!program) return INVALID_PROGRAM;
    *bytes = program->image.size();
    return OK;
}

int nvrtcGetCUBIN(void* handle, char* image) {
    CALLED;
    Program* program = program_of(handle);
    if (!program) return INVALID_PROGRAM;
    if (program->image.empty()) return INVALID_PROGRAM;
    memcpy(image, program->image.data(), program->image.size());
    return OK;
}
}
