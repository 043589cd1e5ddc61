// All that the text of a kernel may name.
#pragma once

// Blocks of a kernel that should run on a multiprocessor side by side: who compiles it says so.
#ifndef TRAWL_BLOCKS
#define TRAWL_BLOCKS 1
#endif

#include "anchored.cuh"
#include "angle.cuh"
#include "base.cuh"
#include "chunk_lanes.cuh"
#include "chunked.cuh"
#include "cycle.cuh"
#include "elementwise.cuh"
#include "events.cuh"
#include "extremes.cuh"
#include "family.cuh"
#include "joint.cuh"
#include "lengths.cuh"
#include "math.cuh"
#include "math_tables.cuh"
#include "power.cuh"
#include "recurrence.cuh"
#include "run.cuh"
#include "stops.cuh"
#include "trend.cuh"
#include "window.cuh"

#ifndef TRAWL_ENTRY
#define TRAWL_ENTRY(NAME, ARGUMENTS)
#endif
