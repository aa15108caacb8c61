// Same log, same bits (architecture decision 8) for the step alone: one log of prompt and generated
// runs under random schedules (slices, neighbours, threads, caps, forks, restarts, failed reads)
// leaves the same page bytes, boundaries, logits and draws as one undisturbed pass, bit for bit.
// Then what a row that cannot be computed leaves behind, and what closed gates and shares say.
#include "model/step.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "memory/hash.h"
#include "model/model_folder.h"
#include "tests/support/map_page_source.h"

namespace mneme::model {
namespace {

using memory::ClosedChunk;
using memory::SessionMemory;
using support::MapPageSource;

using Random = std::mt19937_64;

std::unique_ptr<LoadedModel> LoadGolden(const std::string& name, const std::string& reader) {
  auto folder =
      ModelFolder::Open(std::filesystem::path(MNEME_SOURCE_DIR) / "tests/golden/models" / name);
  if (!folder) return nullptr;
  const auto chosen = folder->ChooseReader(reader);
  if (!chosen) return nullptr;
  auto model = LoadedModel::Make(folder->config(), folder->weights(), folder->router(), *chosen,
                                 kernels::Dtype::kF16, kernels::CpuKernels());
  return model ? std::move(*model) : nullptr;
}

std::vector<int32_t> RandomTokens(size_t count, Random& random) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(10 + random() % 130);
  return tokens;
}

struct LogRun {
  bool generated = false;
  std::vector<int32_t> tokens;
};

// Runs of random lengths, `tokens` in all at least; half of the short ones are generated.
std::vector<LogRun> RandomLog(size_t tokens, uint64_t seed) {
  Random random(seed);
  std::vector<LogRun> log;
  for (size_t total = 0; total < tokens;) {
    const bool generated = log.size() % 2 == 1;
    log.push_back({.generated = generated,
                   .tokens = RandomTokens(1 + random() % (generated ? 60 : 400), random)});
    total += log.back().tokens.size();
  }
  return log;
}

// All that one pass over a log leaves. Floats are compared as bits.
struct Bits {
  std::vector<uint32_t> logits;  // after every prompt token, and after every run
  std::vector<int32_t> drawn;    // after every generated token
  std::vector<uint32_t> log_probabilities;
  std::vector<std::pair<uint32_t, uint32_t>> shares;  // of every generated token
  std::vector<std::vector<std::byte>> stored;         // groups, KV pages, index, boundaries
  bool operator==(const Bits&) const = default;

  void AddLogits(std::span<const float> floats) {
    for (const float each : floats) logits.push_back(std::bit_cast<uint32_t>(each));
  }
};

// A session with the tokens that its chunks are named by.
struct Session {
  SessionMemory memory;
  std::vector<int32_t> tokens;

  Session Fork() const { return {memory.Fork(), tokens}; }
};

// A step with its backend, cache and page source. The cap holds so many groups beside the index
// entries and KV pages of `chunks_charged` chunks.
class Machine {
 public:
  Machine(const LoadedModel& model, int threads, uint64_t groups_max, int batch_max,
          uint64_t chunks_charged = 12)
      : model_(model), source_(model.layout().group_bytes()) {
    const memory::MemoryLayout& layout = model.layout();
    const uint64_t slot_bytes = (layout.group_bytes() + 4095) / 4096 * 4096;
    const uint64_t charged =
        chunks_charged * (ClosedChunk::IndexBytes(layout) + ClosedChunk::KvBytes(layout));
    cache_ = std::move(*memory::PageCache::Make(
        {.group_bytes = layout.group_bytes(), .bytes_max = groups_max * slot_bytes + charged}));
    stream_ = std::move(*kernels::CpuKernels().make_stream(threads));
    step_ = std::make_unique<Step>(model, kernels::CpuKernels(), *stream_, *cache_, &source_,
                                   batch_max);
  }

  Session Empty() { return {SessionMemory(model_.layout(), *cache_), {}}; }
  // As a restart would find the session: its closed chunks and the boundary after the last.
  Session AtLastBorder(const Session& session) {
    const uint32_t count = session.memory.chunk_count();
    if (count == 0) return Empty();
    std::vector<std::shared_ptr<ClosedChunk>> chunks;
    for (uint32_t index = 0; index < count; ++index)
      chunks.push_back(session.memory.shared_chunk(index));
    const auto boundary =
        memory::Boundary::Decode(model_.layout(), boundaries_.at(chunks.back()->key()));
    EXPECT_TRUE(boundary);
    const size_t position = count * static_cast<size_t>(session.memory.chunk_tokens());
    return {SessionMemory(model_.layout(), *cache_, std::move(chunks), *boundary),
            {session.tokens.begin(), session.tokens.begin() + static_cast<ptrdiff_t>(position)}};
  }

  Status Prefill(Session& session, std::span<const int32_t> tokens) {
    MNEME_TRY(step_->Prefill(session.memory, tokens));
    return Append(session, tokens);
  }

  // One decode step; sessions whose row failed are as before.
  std::vector<DecodeResult> Decode(const std::vector<Session*>& sessions,
                                   const std::vector<int32_t>& tokens) {
    std::vector<DecodeRow> rows;
    for (size_t row = 0; row < sessions.size(); ++row) {
      rows.push_back({.memory = &sessions[row]->memory,
                      .token = tokens[row],
                      .explain = true,
                      .sampling = SamplingAt(sessions[row]->memory.position() + 1)});
    }
    std::vector<DecodeResult> results(rows.size());
    EXPECT_TRUE(step_->Decode(rows, results));
    for (size_t row = 0; row < sessions.size(); ++row) {
      if (results[row].status) {
        EXPECT_TRUE(Append(*sessions[row], {&tokens[row], 1}));
      }
    }
    return results;
  }

  std::vector<float> Logits(const Session& session) {
    std::vector<float> logits(static_cast<size_t>(model_.config().vocab));
    EXPECT_TRUE(step_->Sample(session.memory, {}, logits));
    return logits;
  }

  std::vector<float> AllLogits(size_t tokens) {
    std::vector<float> logits(tokens * static_cast<size_t>(model_.config().vocab));
    EXPECT_TRUE(step_->AllLogits(logits));
    return logits;
  }

  void AddStored(const Session& session, Bits& bits) {
    const memory::MemoryLayout& layout = model_.layout();
    for (uint32_t index = 0; index < session.memory.chunk_count(); ++index) {
      ClosedChunk& chunk = session.memory.chunk(index);
      for (int group = 0; group < chunk.groups(); ++group)
        bits.stored.push_back(source_.Saved(chunk, group));
      for (size_t layer = 0; layer < layout.attention_layers.size(); ++layer) {
        const std::byte* page = chunk.kv_page(static_cast<int>(layer));
        bits.stored.emplace_back(page, page + layout.kv_page_bytes());
      }
      const auto* index_bytes = reinterpret_cast<const std::byte*>(chunk.representatives());
      bits.stored.emplace_back(index_bytes, index_bytes + 2 * layout.representatives_count());
      bits.stored.push_back(boundaries_.at(chunk.key()));
    }
  }

  static kernels::Sampling SamplingAt(uint64_t position) {
    return {.temperature = 1.0f, .seed = 11, .position = position};
  }

  Step& step() { return *step_; }
  MapPageSource& source() { return source_; }
  memory::PageCache& cache() { return *cache_; }

 private:
  Status Append(Session& session, std::span<const int32_t> tokens) {
    session.tokens.insert(session.tokens.end(), tokens.begin(), tokens.end());
    if (!session.memory.full()) return {};
    memory::NodeKey parent;
    const uint32_t count = session.memory.chunk_count();
    if (count > 0) parent.bytes = session.memory.chunk(count - 1).key();
    const auto chunk_tokens = static_cast<size_t>(session.memory.chunk_tokens());
    const auto key =
        memory::NodeKeyOf({}, "", parent, std::span(session.tokens).last(chunk_tokens));
    auto sealed = session.memory.Seal(key.bytes, step_->sealing());
    while (!sealed && sealed.error().code() == ErrorCode::kUnavailable)
      sealed = session.memory.Seal(key.bytes, step_->sealing());
    MNEME_TRY(sealed);
    source_.Save(**sealed);
    boundaries_[key.bytes] = session.memory.boundary().Encode();
    return {};
  }

  const LoadedModel& model_;
  MapPageSource source_;
  std::map<memory::ChunkKey, std::vector<std::byte>> boundaries_;
  std::unique_ptr<memory::PageCache> cache_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<Step> step_;
};

// One pass over a log. Disturbances are drawn from `random`; without it there are none.
class Pass {
 public:
  Pass(Machine& machine, const std::vector<LogRun>& log, Random* random)
      : machine_(machine), log_(log), random_(random), session_(machine.Empty()) {}

  Bits Compute() {
    for (run_ = 0; run_ < log_.size(); ++run_) {
      const LogRun& run = log_[run_];
      for (done_ = 0; done_ < run.tokens.size();) {
        Disturb();
        run.generated ? Generate(run.tokens[done_]) : ReadSlice(run);
        if (::testing::Test::HasFailure()) return {};
      }
      bits_.AddLogits(machine_.Logits(session_));
    }
    machine_.AddStored(session_, bits_);
    return std::move(bits_);
  }

  // Sessions that decode in the same steps.
  void AddNeighbour(size_t prompt_tokens) {
    neighbours_.push_back(machine_.Empty());
    ReadInto(neighbours_.back(), RandomTokens(prompt_tokens, *random_));
  }

 private:
  bool Chance(uint64_t one_in) { return random_ != nullptr && (*random_)() % one_in == 0; }

  int SliceMax() { return random_ == nullptr ? 256 : 1 + static_cast<int>((*random_)() % 300); }

  void ReadSlice(const LogRun& run) {
    const int count = SliceTokens(session_.memory.position(), run.tokens.size() - done_,
                                  session_.memory.chunk_tokens(), SliceMax());
    const auto slice = std::span(run.tokens).subspan(done_, static_cast<size_t>(count));
    const uint64_t before = session_.memory.position();
    Status read = machine_.Prefill(session_, slice);
    while (!read && read.error().code() == ErrorCode::kUnavailable) {
      ASSERT_EQ(session_.memory.position(), before);
      read = machine_.Prefill(session_, slice);
    }
    ASSERT_TRUE(read) << read.error().message();
    bits_.AddLogits(machine_.AllLogits(slice.size()));
    done_ += slice.size();
  }

  void Generate(int32_t token) {
    std::vector<Session*> sessions = {&session_};
    std::vector<int32_t> tokens = {token};
    for (Session& neighbour : neighbours_) {
      if (!Chance(2)) continue;
      sessions.push_back(&neighbour);
      tokens.push_back(RandomTokens(1, *random_).front());
    }
    const size_t place = random_ == nullptr ? 0 : (*random_)() % sessions.size();
    std::swap(sessions[0], sessions[place]);
    std::swap(tokens[0], tokens[place]);
    DecodeResult result = machine_.Decode(sessions, tokens)[place];
    for (int again = 0; !result.status && again < 99; ++again)
      result = machine_.Decode({&session_}, {token})[0];
    ASSERT_TRUE(result.status) << result.status.error().message();
    bits_.drawn.push_back(result.next_token);
    bits_.log_probabilities.push_back(std::bit_cast<uint32_t>(result.log_probability));
    for (const ChunkShare& share : result.shares)
      bits_.shares.emplace_back(share.chunk, std::bit_cast<uint32_t>(share.share));
    ++done_;
  }

  void Disturb() {
    if (!Chance(12)) return;
    switch ((*random_)() % 5) {
      case 0: {  // somebody goes another way from here
        Session fork = session_.Fork();
        ReadInto(fork, RandomTokens(1 + (*random_)() % 300, *random_));
        break;
      }
      case 1:  // the copy goes on, the original is gone
        session_ = session_.Fork();
        break;
      case 2:  // a restart
        Replay();
        break;
      case 3:  // a copy becomes a neighbour
        if (!neighbours_.empty()) neighbours_[(*random_)() % neighbours_.size()] = session_.Fork();
        break;
      case 4:
        machine_.source().FailReads(1 + static_cast<int>((*random_)() % 3));
        break;
    }
  }

  void ReadInto(Session& session, const std::vector<int32_t>& tokens) {
    for (size_t done = 0; done < tokens.size();) {
      const int count = SliceTokens(session.memory.position(), tokens.size() - done,
                                    session.memory.chunk_tokens(), SliceMax());
      const auto slice = std::span(tokens).subspan(done, static_cast<size_t>(count));
      const Status read = machine_.Prefill(session, slice);
      if (!read) {
        ASSERT_EQ(read.error().code(), ErrorCode::kUnavailable) << read.error().message();
        continue;
      }
      done += slice.size();
    }
  }

  // The session again from its last border, by the roles in the log.
  void Replay() {
    machine_.source().FailReads(0);
    const uint64_t end = session_.memory.position();
    session_ = machine_.AtLastBorder(session_);
    uint64_t first = 0;
    for (size_t run = 0; run <= run_ && run < log_.size(); ++run) {
      const std::vector<int32_t>& tokens = log_[run].tokens;
      const uint64_t run_end = std::min(first + tokens.size(), end);
      while (session_.memory.position() >= first && session_.memory.position() < run_end) {
        const uint64_t at = session_.memory.position();
        const int32_t* next = tokens.data() + (at - first);
        if (log_[run].generated) {
          ASSERT_TRUE(machine_.Decode({&session_}, {*next})[0].status);
          continue;
        }
        const int count = SliceTokens(at, run_end - at, session_.memory.chunk_tokens(), SliceMax());
        ASSERT_TRUE(machine_.Prefill(session_, {next, static_cast<size_t>(count)}));
      }
      first += tokens.size();
    }
    ASSERT_EQ(session_.memory.position(), end);
  }

  Machine& machine_;
  const std::vector<LogRun>& log_;
  Random* const random_;
  Session session_;
  std::vector<Session> neighbours_;
  size_t run_ = 0;
  size_t done_ = 0;
  Bits bits_;
};

struct Case {
  const char* folder;
  const char* reader;
  int schedules;
};

class StepScheduleTest : public ::testing::TestWithParam<Case> {};

TEST_P(StepScheduleTest, TheLogAloneDecidesEveryBit) {
  const auto model = LoadGolden(GetParam().folder, GetParam().reader);
  ASSERT_NE(model, nullptr);
  const std::vector<LogRun> log = RandomLog(1100, 17);
  const auto groups = static_cast<uint64_t>(model->layout().groups_per_chunk());
  Machine whole(*model, 1, 40 * groups + 1, 1);
  const Bits expected = Pass(whole, log, nullptr).Compute();
  ASSERT_FALSE(expected.logits.empty());
  EXPECT_EQ(whole.source().reads(), 0);
  const uint64_t least = GetParam().reader == std::string_view("hla") ? 12 : 2 * groups + 1;
  int reads = 0;
  for (int seed = 1; seed <= GetParam().schedules; ++seed) {
    SCOPED_TRACE(seed);
    Random random(static_cast<uint64_t>(seed));
    const int batch_max = 1 + static_cast<int>(random() % 5);
    // Little more than a seal and one layer's prefill need, or two chunks that are summed anew.
    const uint64_t groups_max = random() % 4 == 0 ? 40 * groups + 1 : least + random() % 8;
    Machine machine(*model, 1 + seed % 2, groups_max, batch_max);
    Pass pass(machine, log, &random);
    for (int neighbour = 1; neighbour < batch_max; ++neighbour)
      pass.AddNeighbour(1 + random() % 400);
    const Bits found = pass.Compute();
    ASSERT_FALSE(HasFailure());
    reads += machine.source().reads();
    EXPECT_TRUE(found.logits == expected.logits);
    EXPECT_EQ(found.drawn, expected.drawn);
    EXPECT_TRUE(found.log_probabilities == expected.log_probabilities);
    EXPECT_TRUE(found.shares == expected.shares);
    EXPECT_TRUE(found.stored == expected.stored);
  }
  if (groups > 0) {
    // Static mixing reads only what its folded states were made from.
    EXPECT_GT(reads, GetParam().reader == std::string_view("mhla") ? 10 : 100)
        << "groups were dropped and came back";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepScheduleTest,
                         ::testing::Values(Case{"routed", "hla", 50}, Case{"routed", "mhla", 12},
                                           Case{"routed", "native", 12},
                                           Case{"hybrid_tied", "native", 8},
                                           Case{"grouped_untied", "native", 6}),
                         [](const auto& test) {
                           return std::string(test.param.folder) + "_" + test.param.reader;
                         });

class StepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = LoadGolden("routed", "hla");
    ASSERT_NE(model_, nullptr);
    machine_ = std::make_unique<Machine>(*model_, 1, kGroups, 4);
  }

  Session SessionOf(size_t tokens, uint64_t seed) {
    Random random(seed);
    Session session = machine_->Empty();
    const std::vector<int32_t> prompt = RandomTokens(tokens, random);
    for (size_t done = 0; done < tokens; done += 64) {
      EXPECT_TRUE(machine_->Prefill(
          session, std::span(prompt).subspan(done, std::min<size_t>(64, tokens - done))));
    }
    return session;
  }

  // Everything of the session out of host memory.
  void DropGroups(const Session& session) {
    for (uint32_t index = 0; index < session.memory.chunk_count(); ++index) {
      ClosedChunk& chunk = session.memory.chunk(index);
      for (int group = 0; group < chunk.groups(); ++group) machine_->cache().Release(chunk, group);
    }
  }

  static constexpr uint64_t kGroups = 64;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Machine> machine_;
};

TEST_F(StepTest, ALostGroupFailsTheRowsThatChoseItAndNoOther) {
  Session hurt = SessionOf(700, 1);
  Session well = SessionOf(650, 2);
  Session well_alone = well.Fork();
  Session hurt_alone = hurt.Fork();
  const std::vector<float> before = machine_->Logits(hurt);
  DropGroups(hurt);
  for (int group = 0; group < hurt.memory.chunk(1).groups(); ++group)
    machine_->source().Lose(hurt.memory.chunk(1), group);
  Session copy = hurt.Fork();  // shares the chunk that is lost

  const auto results = machine_->Decode({&hurt, &well, &copy}, {20, 21, 22});
  ASSERT_FALSE(results[0].status) << "layer 1 always reads the newest chunk";
  EXPECT_EQ(results[0].status.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(results[0].next_token, -1);
  EXPECT_FALSE(results[2].status);
  ASSERT_TRUE(results[1].status) << results[1].status.error().message();
  EXPECT_EQ(hurt.memory.position(), 700u);
  EXPECT_EQ(machine_->Logits(hurt), before);
  const auto alone = machine_->Decode({&well_alone}, {21});
  EXPECT_EQ(alone[0].next_token, results[1].next_token);
  EXPECT_EQ(alone[0].log_probability, results[1].log_probability);
  EXPECT_EQ(machine_->Logits(well), machine_->Logits(well_alone));
  EXPECT_EQ(hurt.memory.chunk(1).group(hurt.memory.chunk(1).GroupOf(1, 0)), nullptr)
      << "nothing half read is left";
}

TEST_F(StepTest, ASliceThatFailsLeavesTheMemoryAsBefore) {
  Session session = SessionOf(700, 3);
  Session whole = session.Fork();
  Random random(4);
  const std::vector<int32_t> slice = RandomTokens(64 + 4, random);
  ASSERT_TRUE(machine_->Prefill(whole, slice));
  const std::vector<float> expected = machine_->Logits(whole);
  DropGroups(session);
  machine_->source().FailReads(1);
  const Status failed = machine_->Prefill(session, slice);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(session.memory.position(), 700u);
  ASSERT_TRUE(machine_->Prefill(session, slice));
  EXPECT_EQ(machine_->Logits(session), expected);
}

TEST_F(StepTest, ACapTooSmallForOneLayerIsAnAnswer) {
  Machine small(*model_, 1, 4, 1, /*chunks_charged=*/1);
  Random random(5);
  Session session = small.Empty();
  Status status;
  for (int slice = 0; slice < 8 && status; ++slice)
    status = small.Prefill(session, RandomTokens(64, random));
  ASSERT_FALSE(status) << "six groups of the first chunk do not fit";
  EXPECT_EQ(status.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(session.memory.chunk_count(), 0u);
  EXPECT_TRUE(session.memory.full()) << "it can be sealed when there is room";
  EXPECT_EQ(small.cache().group_bytes_used(), 0u);
  EXPECT_EQ(small.cache().charged_bytes(), 0u);
}

TEST_F(StepTest, SharesNameWhatWasReadLargestFirst) {
  Session session = SessionOf(1000, 6);
  const StepCounters before = machine_->step().counters();
  const auto results = machine_->Decode({&session}, {30});
  ASSERT_TRUE(results[0].status);
  const std::vector<ChunkShare>& shares = results[0].shares;
  ASSERT_FALSE(shares.empty());
  float last = std::numeric_limits<float>::infinity();
  bool newest = false;
  for (const ChunkShare& share : shares) {
    EXPECT_LT(share.chunk, 3u);
    EXPECT_GT(share.share, 0);
    EXPECT_TRUE(std::isfinite(share.share));
    EXPECT_LE(share.share, last);
    last = share.share;
    newest = newest || share.chunk == 2;
  }
  EXPECT_TRUE(newest) << "layers 1 and 2 always read it";
  const StepCounters after = machine_->step().counters();
  EXPECT_EQ(after.decode_tokens, before.decode_tokens + 1);
  ASSERT_EQ(after.gates.size(), 2u);
  for (size_t layer = 0; layer < after.gates.size(); ++layer)
    EXPECT_EQ(after.gates[layer].asked, before.gates[layer].asked + 2) << "two key heads";
  EXPECT_EQ(after.all_gates().asked, before.all_gates().asked + 4);
}

TEST_F(StepTest, GatesAreCountedForTokensThatAreAndNotForRowsThatFillAPiece) {
  Session session = SessionOf(1000, 8);
  const std::vector<int32_t> tokens(20, 30);
  const auto read = [&] {
    const StepCounters before = machine_->step().counters();
    Session fork = {session.memory.Fork(), session.tokens};
    EXPECT_TRUE(machine_->Prefill(fork, tokens));
    std::vector<GateCount> gates = machine_->step().counters().gates;
    for (size_t layer = 0; layer < gates.size(); ++layer) {
      gates[layer].open -= before.gates[layer].open;
      gates[layer].asked -= before.gates[layer].asked;
    }
    return gates;
  };
  for (const GateCount& layer : read()) {
    EXPECT_EQ(layer.asked, 20u * 2) << "two key heads";
    EXPECT_GT(layer.open, 0u);
    EXPECT_LE(layer.open, layer.asked * 3) << "three closed chunks";
  }
  machine_->step().CloseAllGates(true);
  for (const GateCount& layer : read()) {
    EXPECT_EQ(layer.asked, 20u * 2);
    EXPECT_EQ(layer.open, 0u);
  }
}

TEST_F(StepTest, ClosedGatesReadNothing) {
  Session session = SessionOf(1000, 7);
  DropGroups(session);
  const int reads = machine_->source().reads();
  machine_->step().CloseAllGates(true);
  const auto results = machine_->Decode({&session}, {30});
  ASSERT_TRUE(results[0].status);
  EXPECT_TRUE(results[0].shares.empty());
  EXPECT_EQ(machine_->source().reads(), reads);
}

TEST(SliceTokensTest, EndsOnTheGridWithTheRunOrAtTheBorder) {
  for (uint64_t position = 0; position < 600; position += 7) {
    for (const uint64_t remaining : {1, 5, 63, 64, 65, 200, 256, 400}) {
      for (const int tokens_max : {1, 63, 64, 100, 128, 256, 1000}) {
        const int count = SliceTokens(position, remaining, 256, tokens_max);
        ASSERT_GT(count, 0);
        ASSERT_LE(static_cast<uint64_t>(count), remaining);
        const uint64_t end = position + static_cast<uint64_t>(count);
        ASSERT_EQ(position / 256, (end - 1) / 256) << "one chunk";
        ASSERT_TRUE(end % 64 == 0 || static_cast<uint64_t>(count) == remaining);
        ASSERT_LE(count, std::max(64, tokens_max));
      }
    }
  }
}

}  // namespace
}  // namespace mneme::model
