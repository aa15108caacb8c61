// A page store in memory that keeps the contract of memory/page_store.h, and loses or damages what
// a test tells it to.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "memory/page_store.h"

namespace mneme::support {

class FakePageStore : public memory::PageStore {
 public:
  // The value under `key` fails its checksum from now on.
  void Damage(const memory::PageKey& key) {
    const std::lock_guard lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end())
      found->second.back() ^= std::byte{1};
  }
  void SetFull(bool full) { full_ = full; }

  Status Write(std::span<const memory::PageWrite> values,
               std::span<const memory::NodeKey> whole) override {
    const std::lock_guard lock(mutex_);
    if (full_) return Fail(Error(Reason::kStoreFull, "write pages: full").RetryAfter(5'000));
    for (const memory::PageWrite& write : values)
      MNEME_TRY(memory::SealValue(write.key, write.value));
    for (const memory::PageWrite& write : values) {
      if (write.key.kind == memory::ValueKind::kBoundary) thin_.erase(write.key.node);
      values_[write.key].assign(write.value.begin(), write.value.end());
      nodes_.insert(write.key.node);
      counters_.writes += 1;
      counters_.written_bytes += write.value.size();
    }
    nodes_.insert(whole.begin(), whole.end());
    whole_.insert(whole.begin(), whole.end());
    return {};
  }

  Result<size_t> Read(const memory::PageKey& key, MutableByteSpan destination) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end())
      return Fail(ErrorCode::kNotFound, "{}: not stored", memory::NameOf(key));
    const std::vector<std::byte>& value = found->second;
    if (value.size() > destination.size())
      return Fail(ErrorCode::kInvalidArgument, "{}: {} bytes do not fit into {}",
                  memory::NameOf(key), value.size(), destination.size());
    if (Status checked = memory::CheckValue(key, value); !checked) {
      counters_.damaged_reads += 1;
      return Fail(std::move(checked).error());
    }
    std::memcpy(destination.data(), value.data(), value.size());
    counters_.reads += 1;
    counters_.read_bytes += value.size();
    return value.size();
  }

  Status Delete(std::span<const memory::NodeKey> nodes) override {
    const std::lock_guard lock(mutex_);
    for (const memory::NodeKey& node : nodes) {
      std::erase_if(values_, [&](const auto& value) { return value.first.node == node; });
      nodes_.erase(node);
      whole_.erase(node);
      thin_.erase(node);
    }
    return {};
  }

  Status Thin(std::span<const memory::ThinnedNode> nodes) override {
    const std::lock_guard lock(mutex_);
    for (const memory::ThinnedNode& thinned : nodes) {
      if (!thin_.insert(thinned.node).second) continue;
      for (const memory::PageKey& key : thinned.values) values_.erase(key);
    }
    return {};
  }

  Result<bool> IsThin(const memory::NodeKey& node) override {
    const std::lock_guard lock(mutex_);
    return thin_.contains(node);
  }

  Result<bool> Has(const memory::NodeKey& node) override {
    const std::lock_guard lock(mutex_);
    return whole_.contains(node);
  }

  Result<std::vector<memory::NodeKey>> List() override {
    const std::lock_guard lock(mutex_);
    return std::vector<memory::NodeKey>(nodes_.begin(), nodes_.end());
  }

  memory::PageStoreState state() const override { return memory::PageStoreState::kReady; }
  Status Sync() override { return {}; }
  Status Compact() override {
    const std::lock_guard lock(mutex_);
    ++compactions_;
    return {};
  }
  uint64_t FileBytes() override { return file_bytes; }
  int compactions() const {
    const std::lock_guard lock(mutex_);
    return compactions_;
  }
  std::atomic<uint64_t> file_bytes{0};  // what it says of itself
  memory::PageStoreCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> full_ = false;  // set by the test while the mover writes
  int compactions_ = 0;
  std::map<memory::PageKey, std::vector<std::byte>> values_;
  std::set<memory::NodeKey> nodes_;
  std::set<memory::NodeKey> whole_;
  std::set<memory::NodeKey> thin_;
  memory::PageStoreCounters counters_;
};

}  // namespace mneme::support
