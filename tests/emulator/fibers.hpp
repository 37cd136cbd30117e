// The threads of a kernel as fibers of one host thread, and where they meet: warps, blocks,
// clusters.
//
// An order that a seed chooses runs everything: a block goes on until all of its threads wait for
// others, or at some of its barriers lets others go on. Blocks run one after another, but for those
// that may wait for each other: of a cooperative launch all, of others a cluster. A block's static
// shared variables are thread-local ones, of which a block has its own copy: what is running lies
// where the compiler put them, the others' lie aside.
#pragma once
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

struct Dim {
    unsigned x, y, z;
};

static Dim threadIdx, blockIdx, gridDim, blockDim;

namespace emulator {

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "emulator: %s (block %u, thread %u)\n", what, blockIdx.x, threadIdx.x);
    abort();
}

// What fibers wait for: that `generation` is another than when they came.
struct Meeting {
    unsigned generation = 0, arrived = 0;
};

struct Warp : Meeting {
    const char* what = nullptr;  // the collective that its lanes are in
    unsigned long long values[2][32];
};

struct Block : Meeting {
    unsigned live = 0, votes[2] = {0, 0};
    unsigned turns = 0;  // how often it was chosen to go on
    std::vector<Warp> warps;
    std::vector<char> aside;  // its static shared variables, while others run
    char* dynamic = nullptr;
};

// An asynchronous copy to shared memory that was begun.
struct Copy {
    void* to;
    const void* from;
    size_t size;
};

struct Fiber {
    void* stack_pointer = nullptr;
    const unsigned* waits_at = nullptr;
    unsigned waits_while = 0;
    const unsigned* polled_at = nullptr;
    unsigned polled = 0;
    unsigned cluster_generation = 0;
    std::vector<Copy> copies;
    unsigned block = 0, thread = 0;
    bool done = false;
};

static constexpr size_t STACK = 128 << 10;
static constexpr unsigned long long LAST_WORD = 0x5AFE5AFE5AFE5AFEull;  // of a stack
static char* stacks = nullptr;
static size_t stacks_bytes = 0;
static std::vector<Block> blocks;
static std::vector<Fiber> fibers;
static Meeting cluster;
static unsigned first_block, cluster_live, chance;
static Fiber* running;
static void* scheduler;
static void (*call)();
static char* statics;
static size_t statics_bytes, dynamic_bytes;

extern "C" void emulator_switch(void** save, void* load);
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

static void choose(Fiber& fiber) {
    running = &fiber;
    threadIdx = {fiber.thread, 0, 0};
    blockIdx = {first_block + fiber.block, 0, 0};
}

static void pause() { emulator_switch(&running->stack_pointer, scheduler); }

// Lets others run until what is at `at` is not `value` any more.
static void wait(const unsigned* at, unsigned value) {
    running->waits_at = at;
    running->waits_while = value;
    pause();
}

// A load by who asks again and again: the second time it waits for another value.
static unsigned poll(const unsigned* at) {
    if (running->polled_at == at && running->polled == *at) wait(at, *at);
    running->polled_at = at;
    return running->polled = *at;
}

static Block& block() { return blocks[running->block]; }
static Warp& warp() { return block().warps[running->thread / 32]; }

// Lets everybody go on if all that there are have come.
static bool meet(Meeting& meeting, unsigned all) {
    if (meeting.arrived < all) return false;
    meeting.arrived = 0;
    meeting.generation++;
    return true;
}

static void body() {
    call();
    Block& own = block();
    if (!running->copies.empty()) fail("a thread ends before its copies are there");
    running->done = true;
    own.live--;
    if (own.live && own.arrived) meet(own, own.live);
    pause();
    fail("a thread that has ended goes on");
}

static int find_statics(dl_phdr_info* info, size_t, void*) {
    const uintptr_t here = (uintptr_t)&find_statics;
    bool ours = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD) ours |= here >= begin && here < begin + part.p_memsz;
        if (part.p_type == PT_TLS) bytes = part.p_memsz;
    }
    if (!ours) return 0;
    statics = (char*)info->dlpi_tls_data;
    statics_bytes = statics ? bytes : 0;
    return 1;
}

static thread_local volatile char anchor;  // so that there are some

// Lets the lanes of a warp go on until all of them wait; whether any did.
static bool run_warp(unsigned b, unsigned from, unsigned threads, size_t& alive) {
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        for (unsigned t = from; t < std::min(from + 32, threads); ++t) {
            Fiber& fiber = fibers[(size_t)b * threads + t];
            if (fiber.done) continue;
            if (fiber.waits_at && *fiber.waits_at == fiber.waits_while) continue;
            fiber.waits_at = nullptr;
            choose(fiber);
            emulator_switch(&scheduler, fiber.stack_pointer);
            again = moved = true;
            if (fiber.done) --alive;
        }
    }
    return moved;
}

// Runs all blocks from `first_block` on that may wait for each other, to their end.
static void run_together(unsigned count, unsigned threads, std::mt19937& random, bool shuffled) {
    const unsigned warps = (threads + 31) / 32;
    blocks.assign(count, Block());
    fibers.assign((size_t)count * threads, Fiber());
    if (stacks_bytes < fibers.size() * STACK) {
        if (stacks) munmap(stacks, stacks_bytes);
        stacks_bytes = fibers.size() * STACK;
        stacks = (char*)mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) fail("no memory for stacks");
    }
    for (unsigned b = 0; b < count; ++b) {
        Block& own = blocks[b];
        own.live = threads;
        own.warps.resize(warps);
        own.aside.assign(statics_bytes, (char)0xCD);
        own.dynamic = (char*)aligned_alloc(1024, (dynamic_bytes + 2047) / 1024 * 1024);
        memset(own.dynamic, 0xCD, dynamic_bytes);
        for (unsigned t = 0; t < threads; ++t) {
            Fiber& fiber = fibers[(size_t)b * threads + t];
            fiber.block = b, fiber.thread = t;
            char* stack = stacks + ((size_t)b * threads + t) * STACK;
            *(unsigned long long*)stack = LAST_WORD;
            void** top = (void**)(stack + STACK - 64);
            *--top = nullptr;
            *--top = (void*)body;
            for (int i = 0; i < 6; ++i) *--top = nullptr;
            fiber.stack_pointer = top;
        }
    }
    cluster = Meeting();
    cluster_live = count * threads;
    std::vector<unsigned> turns(count), order(warps);
    for (unsigned b = 0; b < count; ++b) turns[b] = b;
    for (unsigned w = 0; w < warps; ++w) order[w] = w;
    for (size_t alive = fibers.size(); alive;) {
        if (shuffled) std::shuffle(turns.begin(), turns.end(), random);
        bool moved = false;
        for (const unsigned b : turns) {
            if (!blocks[b].live) continue;
            blocks[b].turns++;
            memcpy(statics, blocks[b].aside.data(), statics_bytes);
            for (bool again = true; again;) {
                again = false;
                if (shuffled) std::shuffle(order.begin(), order.end(), random);
                for (const unsigned w : order) again |= run_warp(b, w * 32, threads, alive);
                moved |= again;
            }
            memcpy(blocks[b].aside.data(), statics, statics_bytes);
        }
        if (!moved) fail("all threads wait: a barrier that not all come to");
    }
    for (size_t i = 0; i < fibers.size(); ++i)
        if (*(unsigned long long*)(stacks + i * STACK) != LAST_WORD) fail("a stack is too small");
    for (Block& own : blocks) free(own.dynamic);
}

static void run(unsigned grid, unsigned threads, size_t shared, unsigned together, unsigned seed,
                void (*kernel)()) {
    anchor = 0;
    dl_iterate_phdr(find_statics, nullptr);
    call = kernel;
    gridDim = {grid, 1, 1};
    blockDim = {threads, 1, 1};
    dynamic_bytes = shared;
    std::mt19937 random(seed);
    chance = random();
    for (first_block = 0; first_block < grid; first_block += together)
        run_together(std::min(together, grid - first_block), threads, random, seed != 0);
}

// The words of the arguments, each of its type.
template <class... Types, size_t... Places>
static void apply(void (*kernel)(Types...), void** arguments, std::index_sequence<Places...>) {
    kernel(*(Types*)arguments[Places]...);
}
template <class... Types>
static unsigned sizes_of(void (*)(Types...), unsigned* sizes) {
    const unsigned all[] = {(unsigned)sizeof(Types)...};
    std::copy(std::begin(all), std::end(all), sizes);
    return sizeof...(Types);
}
template <class... Types>
static void apply(void (*kernel)(Types...), void** arguments) {
    apply(kernel, arguments, std::index_sequence_for<Types...>());
}

static char* dynamic_shared() { return block().dynamic; }

// Where another block of the cluster has what this one has at `here`: to be used at once.
static void* of_peer(const void* here, unsigned rank) {
    Block& own = block();
    const char* at = (const char*)here;
    if (rank >= blocks.size()) fail("a block that the cluster has not");
    if (!blocks[rank].live) fail("a block that has left");
    if (at >= own.dynamic && at < own.dynamic + dynamic_bytes)
        return blocks[rank].dynamic + (at - own.dynamic);
    if (at < statics || at >= statics + statics_bytes) fail("mapa of what is not shared");
    return rank == running->block ? (char*)here : blocks[rank].aside.data() + (at - statics);
}

// Whether a block, at this point of its run, lets others go on: one time in `times`.
static bool by_chance(unsigned point, unsigned times) {
    unsigned mixed = (point * 2654435761u ^ running->block * 40503u ^ chance) * 2246822519u;
    return (mixed >> 16) % times == 0;
}

static unsigned long long* exchange(const char* what, unsigned long long value) {
    Warp& own = warp();
    const unsigned generation = own.generation, lanes = std::min(32u, blockDim.x);
    if (own.arrived == 0) own.what = what;
    if (own.what != what) fail("lanes of a warp in different collectives");
    own.values[generation & 1][running->thread & 31] = value;
    own.arrived++;
    if (!meet(own, lanes)) wait(&own.generation, generation);
    return own.values[generation & 1];
}

template <class X>
static unsigned long long bits(X x) {
    unsigned long long all = 0;
    memcpy(&all, &x, sizeof x);
    return all;
}
template <class X>
static X from_bits(unsigned long long all) {
    X x;
    memcpy(&x, &all, sizeof x);
    return x;
}

static unsigned vote(unsigned adds) {
    Block& own = block();
    const unsigned generation = own.generation;
    unsigned& votes = own.votes[generation & 1];
    if (own.arrived == 0) votes = 0;
    votes += adds;
    own.arrived++;
    if (!meet(own, own.live)) wait(&own.generation, generation);
    const unsigned result = votes;
    if (blocks.size() > 1 && by_chance(generation, 8)) wait(&own.turns, own.turns);
    return result;
}

// A barrier of the cluster in two halves, of which a fiber has at most one open.
static void cluster_arrive() {
    running->cluster_generation = cluster.generation;
    cluster.arrived++;
    meet(cluster, cluster_live);
    // Others go on first, or this block to its end.
    const unsigned turns = block().turns;
    if (by_chance(turns, 2)) wait(&block().turns, turns);
}
static void cluster_wait() {
    if (cluster.generation == running->cluster_generation)
        wait(&cluster.generation, running->cluster_generation);
}

}  // namespace emulator
