// GateBench: what a generated token takes where every key head of every routed layer reads exactly
// so many closed chunks, for each reader beside native. The readers take turns in one run, so their
// ratios mean something on a machine that others use too.
//
// A turn is one chunk of tokens after the history and its sealing. hla scores all chunks and reads
// the wanted number; mhla has static gates of 1 for as many of the newest chunks.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "cli/bench_model.h"
#include "memory/memory_layout.h"

namespace mneme::cli {

struct GateBenchOptions {
  BenchModel model;    // choice.reader is not asked
  int gates = 1;       // closed chunks that each key head reads
  size_t history = 0;  // tokens; whole chunks of them are read
  int repeats = 1;     // turns of each reader; the best counts
};

struct ReaderTime {
  memory::Reader reader = memory::Reader::kNative;
  double token_seconds = 0;
};

// Native first; hla where the folder has a router; mhla.
// Errors:  kInvalidArgument  the history or the router has not so many chunks to read
//          and those of loading
Result<std::vector<ReaderTime>> MeasureGates(const GateBenchOptions& options);

}  // namespace mneme::cli
