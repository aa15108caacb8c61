// Loading a model in this process, for the commands that need no server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/command.h"
#include "model/local_session.h"

namespace mneme::cli {

// MiB of history in memory where --host-mib is not given: what memory.host_bytes_max is for a
// server.
uint64_t StandardHostMib();

struct LocalModelChoice {
  std::string folder;
  std::string reader;              // empty: the folder's own choice
  std::string page_dtype = "f16";  // or f32
  int threads = 0;                 // 0: one per core
  int batch_max = 1;
  int newest_open = 0;  // as in model::LocalModelOptions
  uint64_t host_mib_max = StandardHostMib();
};

void AddLocalModelOptions(CLI::App& app, LocalModelChoice& choice);

// --host-mib, whose default `host_mib_max` holds.
void AddHostMibOption(CLI::App& app, uint64_t& host_mib_max);

// The threads that `choice` stands for.
int ThreadsOf(const LocalModelChoice& choice);

// Shows how far it is on standard error. `folder` is the choice's, opened; what else a command
// needs is looked at in between, so that nothing is refused after minutes of loading.
Result<std::unique_ptr<model::LocalModel>> LoadLocalModel(const model::ModelFolder& folder,
                                                          const LocalModelChoice& choice);

// A model of a published size with random weights, for `mneme bench`.
Result<std::unique_ptr<model::LocalModel>> MakeRandomModel(std::string_view shape,
                                                           const LocalModelChoice& choice);

}  // namespace mneme::cli
