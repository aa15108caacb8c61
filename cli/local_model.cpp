#include "cli/local_model.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "base/bytes.h"
#include "base/check.h"
#include "cli/terminal.h"
#include "model/fingerprints.h"
#include "model/random_weights.h"
#include "server/config.h"

namespace mneme::cli {

void AddLocalModelOptions(CLI::App& app, LocalModelChoice& choice) {
  app.add_option("--model", choice.folder,
                 "folder with config.json, tokenizer.json and *.safetensors")
      ->required();
  app.add_option("--reader", choice.reader,
                 "how history is read: hla, mhla or native (default: hla where the folder has a "
                 "router, else native)");
  app.add_option("--page-dtype", choice.page_dtype, "type of pages in memory")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  app.add_option("--threads", choice.threads, "threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddHostMibOption(app, choice.host_mib_max);
}

uint64_t StandardHostMib() {
  const auto standard = server::LoadConfiguration({});
  MNEME_CHECK(standard.has_value(), "a server's defaults");
  return standard->config.memory().host_bytes_max() / kMiB;
}

void AddHostMibOption(CLI::App& app, uint64_t& host_mib_max) {
  app.add_option("--host-mib", host_mib_max,
                 "cap on history in memory, MiB; a server's is memory.host_bytes_max")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24))
      ->capture_default_str();
}

int ThreadsOf(const LocalModelChoice& choice) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return choice.threads == 0 ? cores : choice.threads;
}

namespace {

model::LocalModelOptions OptionsOf(const LocalModelChoice& choice, ProgressLine& progress) {
  return {.reader = choice.reader,
          .page_dtype = choice.page_dtype == "f32" ? kernels::Dtype::kF32 : kernels::Dtype::kF16,
          .threads = ThreadsOf(choice),
          .batch_max = choice.batch_max,
          .host_bytes_max = choice.host_mib_max * kMiB,
          .newest_open = choice.newest_open,
          .progress = [&progress](int done, int total) {
            progress.Show("loading", static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0);
          }};
}

}  // namespace

Result<std::unique_ptr<model::LocalModel>> LoadLocalModel(const model::ModelFolder& folder,
                                                          const LocalModelChoice& choice) {
  // Nothing is remembered: there is no store folder to remember it in.
  MNEME_TRY(model::Fingerprints::Open({}).CheckSums(folder.path()));
  ProgressLine progress("parts");
  auto model = model::LocalModel::Load(folder, OptionsOf(choice, progress));
  progress.Clear();
  return model;
}

Result<std::unique_ptr<model::LocalModel>> MakeRandomModel(std::string_view shape,
                                                           const LocalModelChoice& choice) {
  const auto config = model::PublishedShape(shape);
  MNEME_TRY(config);
  ProgressLine progress("parts");
  auto model = model::LocalModel::Random(*config, OptionsOf(choice, progress));
  progress.Clear();
  return model;
}

}  // namespace mneme::cli
