#include "tests/support/store_case.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace mneme::support {
namespace {

using memory::NodeKey;
using memory::PageKey;

uint64_t SeedOf(std::string_view text, uint64_t number) {
  return memory::Xxh3(AsBytes(fmt::format("{} {}", text, number))).low;
}

}  // namespace

memory::SpaceMarks NoMarks() { return {.soft_bytes = 1, .hard_bytes = 1}; }

Result<OpenStores> OpenLog(const std::string& path, const memory::TurnStoreOptions& log,
                           Clock& clock, const memory::SpaceMarks& marks) {
  OpenStores stores;
  auto folder = memory::StoreFolder::Open(path, marks, clock);
  MNEME_TRY(folder);
  stores.folder = std::make_unique<memory::StoreFolder>(std::move(*folder));
  auto opened = memory::OpenTurnStore(*stores.folder, log, clock);
  MNEME_TRY(opened);
  stores.log = std::move(*opened);
  return stores;
}

Result<OpenStores> Open(const std::string& path, const memory::TurnStoreOptions& log,
                        const memory::PageStoreOptions& pages, const memory::SpaceMarks& marks) {
  auto stores = OpenLog(path, log, RealClock(), marks);
  MNEME_TRY(stores);
  auto opened = memory::OpenPageStore(*stores->folder, pages);
  MNEME_TRY(opened);
  stores->pages = std::move(opened->store);
  return stores;
}

memory::CreateSession MakeSession(const std::string& name, const std::string& tenant) {
  memory::CreateSession create;
  create.record.set_name(name);
  create.record.set_tenant(tenant);
  create.record.set_identity("identity bytes");
  create.record.set_identity_text("demo model, reader hla");
  create.record.set_created_wall_us(1'700'000'000'000'000);
  create.record.set_policy(v1::HISTORY_POLICY_EXACT);
  create.record.set_chunk_tokens(kCaseChunkTokens);
  return create;
}

memory::AppendTurn MakeTurn(const std::string& name, SessionId session, uint64_t number,
                            int tokens) {
  memory::AppendTurn append{.session = session, .record = {}};
  std::mt19937_64 random(SeedOf(name, number));
  append.record.set_kind(number % 2 == 1 ? v1::TURN_KIND_APPEND : v1::TURN_KIND_GENERATE);
  append.record.set_idempotency_key(fmt::format("key {} {}", name, number));
  append.record.set_request_hash(
      std::string(memory::TextOf(memory::Sha256(AsBytes(append.record.idempotency_key())))));
  append.record.set_expected_head(number - 1);
  v1::TurnPart* part = append.record.add_parts();
  part->set_role(number % 2 == 1 ? v1::TOKEN_ROLE_PROMPT : v1::TOKEN_ROLE_GENERATED);
  for (int i = 0; i < tokens; ++i) part->add_token_ids(static_cast<uint32_t>(random() % 248'000));
  append.record.set_wall_us(1'700'000'000'000'000 + number);
  return append;
}

bool IsTurn(const std::string& name, uint64_t number, const v1::TurnRecord& record) {
  if (record.parts_size() != 1) return false;
  const auto expected =
      MakeTurn(name, {record.session_id()}, number, record.parts(0).token_ids_size());
  return record.number() == number && record.kind() == expected.record.kind() &&
         record.idempotency_key() == expected.record.idempotency_key() &&
         std::equal(record.parts(0).token_ids().begin(), record.parts(0).token_ids().end(),
                    expected.record.parts(0).token_ids().begin());
}

NodeKey CaseNodeKey(const std::string& name, uint64_t index) {
  return {memory::Sha256(AsBytes(fmt::format("node {} {}", name, index)))};
}

memory::AddNode MakeNode(const std::string& name, SessionId session, uint64_t index) {
  memory::AddNode add{.session = session, .node = {}};
  add.node.set_key(std::string(memory::TextOf(CaseNodeKey(name, index).bytes)));
  if (index > 0)
    add.node.set_parent(std::string(memory::TextOf(CaseNodeKey(name, index - 1).bytes)));
  add.node.set_first_position(index * kCaseChunkTokens);
  add.node.set_tokens(kCaseChunkTokens);
  for (uint32_t layer = 0; layer < kCaseLayers; ++layer) add.node.add_group_layers(layer);
  add.node.set_groups_per_layer(kCaseKeyHeads);
  return add;
}

PageKey CaseGroupKey(const NodeKey& node, int layer, int key_head) {
  return {.node = node,
          .kind = memory::ValueKind::kPageGroup,
          .layer = static_cast<uint16_t>(layer),
          .key_head = static_cast<uint16_t>(key_head)};
}

std::vector<std::byte> MakeGroup(const PageKey& key, int key_dim) {
  kernels::PageGroupHeader header;
  header.heads = 2;
  header.layer = key.layer;
  header.key_head = key.key_head;
  header.key_dim = header.value_dim = static_cast<uint16_t>(key_dim);
  header.tokens = kCaseChunkTokens;
  std::vector<std::byte> group(
      kernels::PageGroupBytes(header.heads, key_dim, key_dim, header.dtype));
  std::mt19937_64 random(SeedOf(memory::NameOf(key), 0));
  for (size_t i = sizeof(header); i + 8 <= group.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(group.data() + i, &word, sizeof(word));
  }
  std::memcpy(group.data(), &header, sizeof(header));
  return group;
}

Status WriteNodeValues(memory::PageStore& pages, const NodeKey& node, int key_dim) {
  for (int layer = 0; layer < kCaseLayers; ++layer) {
    std::vector<std::vector<std::byte>> groups;
    std::vector<memory::PageWrite> writes;
    for (int head = 0; head < kCaseKeyHeads; ++head) {
      const PageKey key = CaseGroupKey(node, layer, head);
      groups.push_back(MakeGroup(key, key_dim));
      writes.push_back({.key = key, .value = groups.back()});
    }
    const bool last = layer + 1 == kCaseLayers;
    MNEME_TRY(pages.Write(writes, last ? std::span(&node, 1) : std::span<const NodeKey>()));
  }
  return {};
}

Status CheckNodeValues(memory::PageStore& pages, const NodeKey& node, int key_dim,
                       int first_layer) {
  for (int layer = first_layer; layer < kCaseLayers; ++layer)
    for (int head = 0; head < kCaseKeyHeads; ++head) {
      const PageKey key = CaseGroupKey(node, layer, head);
      std::vector<std::byte> expected = MakeGroup(key, key_dim);
      MNEME_TRY(memory::SealValue(key, expected));
      std::vector<std::byte> found(expected.size());
      const auto bytes = pages.Read(key, found);
      MNEME_TRY(bytes);
      if (*bytes != expected.size() || found != expected)
        return Fail(ErrorCode::kInternal, "{}: wrong bytes were served", memory::NameOf(key));
    }
  return {};
}

Result<memory::Committed> CommitOne(memory::TurnStore& log, const memory::LogEntry& entry) {
  return log.Commit(std::span(&entry, 1)).front();
}

uint64_t FolderBytes(const std::string& path) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    struct stat status = {};
    if (entry.is_regular_file() && ::stat(entry.path().c_str(), &status) == 0)
      bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

std::vector<std::string> FilesOf(const std::string& folder, const std::string& extension) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

void FlipBit(const std::string& path, uint64_t byte, int bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(byte));
  const int before = file.get();
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(static_cast<char>(before ^ (1 << bit)));
}

}  // namespace mneme::support
