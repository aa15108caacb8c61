// An engine over real stores in a temporary folder, with a tiny random model that routes history
// (tests/golden/models/routed), and the ways a test asks it things.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/store_case.h"
#include "tests/support/temp_folder.h"

namespace mneme::support {

// What a request was answered.
struct Answer {
  std::vector<v1::Event> events;

  const v1::Event& last() const { return events.back(); }
  bool failed() const { return last().has_failed(); }
  std::string reason() const { return last().failed().error().reason(); }
  std::string code() const { return last().failed().error().code(); }
  const v1::Done& done() const { return last().done(); }
  std::vector<uint32_t> tokens() const;
  std::string text() const;  // of all token events
};

// A request on its way.
struct Asked {
  std::shared_ptr<engine::EventStream> stream;
  std::shared_ptr<engine::Call> call;
  std::vector<v1::Event> seen;

  Answer Wait();
  // Waits until `count` tokens have come; false when it ended before.
  bool WaitForTokens(size_t count);
};

class EngineCase {
 public:
  // A model folder under the repository; `host_groups` caps the page cache at so many groups.
  explicit EngineCase(const std::string& model = "tests/golden/models/routed",
                      const std::string& reader = "");
  ~EngineCase();

  engine::EngineOptions options;
  kernels::KernelTable kernels = kernels::CpuKernels();  // a fault point: any entry, before Start
  memory::TurnStoreOptions log_options;
  memory::PageStoreOptions page_options;
  memory::SpaceMarks marks = NoMarks();

  void Start();
  // As Start, where the stores may refuse to open.
  Status TryStart();
  void Stop(engine::StopMode mode);
  void Restart(engine::StopMode mode) {
    Stop(mode);
    Start();
  }
  // Bytes under a cap that holds so many page groups and the index of so many chunks.
  uint64_t CapOf(uint64_t groups, uint64_t chunks) const;

  Asked Submit(v1::Request request, int64_t deadline_us = 0) {
    return Submit(std::move(request), deadline_us, /*pause_bytes=*/256 * 1024);
  }
  // As Submit, where an answer draws its next token only when its last one was taken: it cannot end
  // before the test has met it.
  Asked SubmitHeld(v1::Request request) {
    return Submit(std::move(request), /*deadline_us=*/0, /*pause_bytes=*/1);
  }
  Answer Ask(v1::Request request) { return Submit(std::move(request)).Wait(); }
  Answer Open(const std::string& session);
  Answer Append(const std::string& session, const std::vector<uint32_t>& ids, bool wait = true);
  Answer Generate(const std::string& session, const std::vector<uint32_t>& ids, uint32_t tokens);
  v1::StatsReply Stats(const std::string& session = "");

  engine::Engine& engine() { return *engine_; }
  OpenStores& stores() { return *stores_; }
  const model::LoadedModel& model() const { return *model_; }
  const model::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& folder() const { return folder_.path(); }

 private:
  Asked Submit(v1::Request request, int64_t deadline_us, size_t pause_bytes);

  TempFolder folder_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<model::LoadedModel> model_;
  std::optional<OpenStores> stores_;
  std::unique_ptr<engine::Engine> engine_;
  uint64_t next_id_ = 1;
};

// Requests.
v1::Request AppendOf(const std::string& session, const std::vector<uint32_t>& ids);
v1::Request GenerateOf(const std::string& session, const std::vector<uint32_t>& ids,
                       uint32_t tokens);

// `count` ids of the tiny model's vocabulary, by a seed; none of them ends an answer.
std::vector<uint32_t> RandomIds(size_t count, uint64_t seed);

}  // namespace mneme::support
