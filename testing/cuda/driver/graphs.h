// Graphs of kernels: built node by node, instantiated, changed kernel by kernel, launched by one call.
//
// As strict as the real driver: nodes of other graphs, or named twice, are no dependencies; a kernel is changed through the node
// of the graph that was instantiated, as long as that graph lives; launches of one instance follow each other, whatever
// their streams; what a launch reads is as it was when the launch was made. Streams are not captured: there is no call for it.
#pragma once
#include "process.h"

// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelParameters {
    void* function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void** parameters;
    void** extra;
    void* kernel;
    void* context;
};

// The work of a launch with these figures, or the result that refuses it.
inline int work_of(Device& device, const KernelParameters& of, Work* work) {
    auto found = device.functions.find(of.function);
    if (found == device.functions.end()) return INVALID_HANDLE;
    Function* function = found->second.get();
    if (of.extra) return NOT_SUPPORTED;
    const bool one_dimension = of.grid_y == 1 && of.grid_z == 1 && of.block_y == 1 && of.block_z == 1;
    if (of.grid_x == 0 || of.grid_x > 2147483647u || of.block_x == 0 || of.block_x > (unsigned)THREADS_MAX) return INVALID_VALUE;
    if (!one_dimension) return NOT_SUPPORTED;
    if ((int64_t)of.shared_bytes > function->shared_max) return INVALID_VALUE;
    if ((int)of.block_x > function->module->threads_max) return INVALID_VALUE;
    if (!of.parameters || !of.parameters[0] || function->argument_bytes > ARGUMENT_BYTES_MAX) return INVALID_VALUE;
    work->kind = Kind::LAUNCH;
    work->function = function, work->blocks = of.grid_x, work->threads = of.block_x, work->shared_bytes = of.shared_bytes;
    work->held.assign((const char*)of.parameters[0], (const char*)of.parameters[0] + function->argument_bytes);
    return SUCCESS;
}

// Puts a kernel into a stream. `overhead_ns`: what its launch takes before it.
inline void put_kernel(Device& device, Stream& stream, Work work, int64_t overhead_ns) {
    work.launch = device.counts.kernels += 1;
    const bool is_slow = device.settings.slow_launch == work.launch;
    device.put(stream, KERNELS, overhead_ns + (is_slow ? device.settings.slow_ns : device.settings.kernel_ns), std::move(work));
}

inline int kernel_of(Device& device, const KernelParameters* of, Work* work) {
    if (!of || (!of->function) == (!of->kernel)) return INVALID_VALUE;
    if (of->kernel) return NOT_SUPPORTED;
    if (of->context && of->context != &device) return INVALID_VALUE;
    // Of another context, or none: here it is a value and not a handle.
    const int made = work_of(device, *of, work);
    return made == INVALID_HANDLE ? (int)INVALID_VALUE : made;
}

extern "C" {

int cuGraphCreate(void** handle, unsigned flags) {
    IN_CONTEXT;
    if (!handle || flags != 0) return INVALID_VALUE;
    auto graph = std::make_unique<Graph>();
    *handle = graph.get();
    device.graphs[*handle] = std::move(graph);
    return device.ended;
}

int cuGraphAddKernelNode_v2(void** handle, void* to, void* const* dependencies, size_t count, const KernelParameters* of) {
    IN_CONTEXT;
    auto found = device.graphs.find(to);
    if (!handle || found == device.graphs.end() || (count > 0 && !dependencies)) return INVALID_VALUE;
    Graph& graph = *found->second;
    auto node = std::make_unique<GraphNode>();
    std::set<void*> distinct;
    for (size_t i = 0; i < count; ++i) {
        const bool is_own = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](auto& own) { return own.get() == dependencies[i]; });
        if (!is_own || !distinct.insert(dependencies[i]).second) return INVALID_VALUE;
        node->behind.push_back((GraphNode*)dependencies[i]);
    }
    if (const int wrong = kernel_of(device, of, &node->work)) return wrong;
    *handle = node.get();
    graph.nodes.push_back(std::move(node));
    return device.ended;
}

int cuGraphInstantiateWithFlags(void** handle, void* of, unsigned long long flags) {
    IN_CONTEXT;
    auto found = device.graphs.find(of);
    if (!handle || found == device.graphs.end() || flags > 15) return INVALID_VALUE;
    if (flags != 0) return NOT_SUPPORTED;
    auto made = std::make_unique<GraphInstance>();
    made->graph = of;
    made->done = std::make_unique<Event>(Event{&device, false});
    // Nodes that do not depend on each other run in any order: here the later one first.
    std::vector<GraphNode*> left;
    for (auto& node : found->second->nodes) left.push_back(node.get());
    std::set<GraphNode*> done;
    while (!left.empty()) {
        for (size_t at = left.size(); at-- > 0;) {
            GraphNode* node = left[at];
            if (!std::all_of(node->behind.begin(), node->behind.end(), [&](GraphNode* one) { return done.count(one) > 0; })) continue;
            made->kernels.push_back({node, node->work});
            done.insert(node);
            left.erase(left.begin() + (long)at);
            break;
        }
    }
    *handle = made.get();
    device.instances[*handle] = std::move(made);
    return device.ended;
}

int cuGraphExecKernelNodeSetParams_v2(void* handle, void* node, const KernelParameters* of) {
    IN_CONTEXT;
    auto found = device.instances.find(handle);
    if (found == device.instances.end() || !device.graphs.count(found->second->graph)) return INVALID_VALUE;
    for (auto& [own, work] : found->second->kernels) {
        if (own == node) {
            Work changed{Kind::LAUNCH};
            if (const int wrong = kernel_of(device, of, &changed)) return wrong;
            work = std::move(changed);
            return device.ended;
        }
    }
    return INVALID_VALUE;
}

int cuGraphLaunch(void* handle, void* on) {
    IN_CONTEXT;
    STREAM(stream, on);
    auto found = device.instances.find(handle);
    if (found == device.instances.end()) return INVALID_VALUE;
    GraphInstance& instance = *found->second;
    device.counts.graph_launches += 1;
    // The next launch in another stream waits for this one.
    if (instance.done->last && instance.done->last->stream != stream) device.wait(*stream, *instance.done);
    int64_t overhead_ns = device.settings.launch_ns;
    for (auto& [node, kernel] : instance.kernels) {
        put_kernel(device, *stream, kernel, overhead_ns);
        overhead_ns = 0;
    }
    device.record(*stream, *instance.done);
    return device.ended;
}

// What is under way is not affected.
int cuGraphExecDestroy(void* handle) {
    IN_CONTEXT;
    auto found = device.instances.find(handle);
    if (found == device.instances.end()) return INVALID_VALUE;
    device.instances.erase(found);
    return device.ended;
}

int cuGraphDestroy(void* handle) {
    IN_CONTEXT;
    return device.graphs.erase(handle) == 0 ? (int)INVALID_VALUE : device.ended;
}
}
