#include "memory/page_value.h"

#include <cstring>

namespace mneme::memory {
namespace {

constexpr size_t kTailMarkBytes = 24;

// Where the checksum lies, after the header was found to belong to `key` and to fit the size.
Result<size_t> ChecksumOffset(const PageKey& key, ByteSpan value) {
  if (value.size() > kValueBytesMax)
    return Fail(Reason::kTooLarge, "{}: {} bytes, at most {}", NameOf(key), value.size(),
                kValueBytesMax);
  if (key.kind == ValueKind::kPageGroup) {
    kernels::PageGroupHeader header;
    if (value.size() < sizeof(header))
      return Fail(ErrorCode::kInvalidArgument, "{}: {} bytes", NameOf(key), value.size());
    std::memcpy(static_cast<void*>(&header), value.data(), sizeof(header));
    if (header.magic != kernels::kPageGroupMagic || header.version != kernels::kPageGroupVersion)
      return Fail(ErrorCode::kInvalidArgument, "{}: not a page group of version {}", NameOf(key),
                  kernels::kPageGroupVersion);
    const bool known_type =
        (header.dtype == kernels::Dtype::kF16 || header.dtype == kernels::Dtype::kF32) &&
        header.transition <= kernels::TransitionKind::kDiagonal;
    if (!known_type || header.heads == 0 || header.heads > kernels::kGroupHeadsMax)
      return Fail(ErrorCode::kInvalidArgument, "{}: {} heads of type {}, transition {}",
                  NameOf(key), header.heads, static_cast<int>(header.dtype),
                  static_cast<int>(header.transition));
    const size_t expected = kernels::PageGroupBytes(header.heads, header.key_dim, header.value_dim,
                                                    header.dtype, header.transition);
    if (header.layer != key.layer || header.key_head != key.key_head || expected != value.size())
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: its header says layer {} head {} and {} bytes, not {}", NameOf(key),
                  header.layer, header.key_head, expected, value.size());
    return offsetof(kernels::PageGroupHeader, checksum);
  }
  ValueHeader header;
  if (value.size() < sizeof(header))
    return Fail(ErrorCode::kInvalidArgument, "{}: {} bytes", NameOf(key), value.size());
  std::memcpy(static_cast<void*>(&header), value.data(), sizeof(header));
  if (header.magic != kValueMagic || header.version != kValueVersion)
    return Fail(ErrorCode::kInvalidArgument, "{}: not a value of version {}", NameOf(key),
                kValueVersion);
  if (header.kind != key.kind || header.layer != key.layer || header.key_head != key.key_head ||
      header.payload_bytes != value.size() - sizeof(header))
    return Fail(ErrorCode::kInvalidArgument,
                "{}: its header says kind {} layer {} head {} and {} bytes after it, not {}",
                NameOf(key), static_cast<int>(header.kind), header.layer, header.key_head,
                header.payload_bytes, value.size() - sizeof(header));
  return offsetof(ValueHeader, checksum);
}

}  // namespace

Status SealValue(const PageKey& key, MutableByteSpan value) {
  const auto offset = ChecksumOffset(key, value);
  MNEME_TRY(offset);
  const Checksum128 checksum = Xxh3Without(value, *offset);
  std::memcpy(value.data() + *offset, &checksum, sizeof(checksum));
  return {};
}

Status CheckValue(const PageKey& key, ByteSpan value) {
  const auto offset = ChecksumOffset(key, value);
  if (!offset) return Fail(ErrorCode::kCorruption, "{}", offset.error().message());
  Checksum128 stored;
  std::memcpy(&stored, value.data() + *offset, sizeof(stored));
  if (Xxh3Without(value, *offset) != stored)
    return Fail(ErrorCode::kCorruption, "{}: checksum differs", NameOf(key));
  return {};
}

std::string NameOf(const PageKey& key) {
  return fmt::format("node {} kind {} layer {} head {}", ShortHex(key.node.bytes),
                     static_cast<int>(key.kind), key.layer, key.key_head);
}

NodeKey TailKeyOf(SessionId session) {
  NodeKey key;
  std::memset(key.bytes.data(), 0xff, kTailMarkBytes);
  for (size_t i = 0; i < 8; ++i)
    key.bytes[kTailMarkBytes + i] = static_cast<std::byte>(session.value >> (56 - 8 * i));
  return key;
}

SessionId TailSessionOf(const NodeKey& key) {
  for (size_t i = 0; i < kTailMarkBytes; ++i)
    if (key.bytes[i] != std::byte{0xff}) return {};
  SessionId session;
  for (size_t i = 0; i < 8; ++i)
    session.value = session.value << 8 | static_cast<uint64_t>(key.bytes[kTailMarkBytes + i]);
  return session;
}

}  // namespace mneme::memory
