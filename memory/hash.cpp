#include "memory/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <boost/crc.hpp>
#include <memory>

#include "base/check.h"

namespace mneme::memory {
namespace {

class Sha256Stream {
 public:
  Sha256Stream() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    MNEME_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
                "no SHA-256");
  }

  void Add(ByteSpan bytes) {
    MNEME_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
  }

  void AddLength(uint64_t length) { Add(std::as_bytes(std::span(&length, 1))); }

  Digest Finish() {
    Digest digest;
    MNEME_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                   nullptr) == 1,
                "SHA-256");
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

Checksum128 From(XXH128_hash_t hash) { return {.low = hash.low64, .high = hash.high64}; }

}  // namespace

Digest Sha256(ByteSpan bytes) {
  Sha256Stream stream;
  stream.Add(bytes);
  return stream.Finish();
}

ChainHash NextChainHash(const ChainHash& previous, ByteSpan record) {
  Sha256Stream stream;
  stream.Add(previous.bytes);
  stream.Add(record);
  return {stream.Finish()};
}

NodeKey NodeKeyOf(ByteSpan identity, std::string_view tenant, const NodeKey& parent,
                  std::span<const int32_t> token_ids) {
  Sha256Stream stream;
  stream.AddLength(identity.size());
  stream.Add(identity);
  stream.AddLength(tenant.size());
  stream.Add(AsBytes(tenant));
  stream.Add(parent.bytes);
  stream.AddLength(token_ids.size());
  stream.Add(std::as_bytes(token_ids));
  return {stream.Finish()};
}

Checksum128 Xxh3(ByteSpan bytes) { return From(XXH3_128bits(bytes.data(), bytes.size())); }

Checksum128 Xxh3Without(ByteSpan bytes, size_t offset) {
  constexpr size_t kHole = sizeof(Checksum128);
  MNEME_CHECK(offset + kHole <= bytes.size(), "checksum at {} of {} bytes", offset, bytes.size());
  constexpr std::byte kZeros[kHole] = {};
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              &XXH3_freeState);
  MNEME_CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK, "no XXH3 state");
  XXH3_128bits_update(state.get(), bytes.data(), offset);
  XXH3_128bits_update(state.get(), kZeros, kHole);
  const ByteSpan rest = bytes.subspan(offset + kHole);
  XXH3_128bits_update(state.get(), rest.data(), rest.size());
  return From(XXH3_128bits_digest(state.get()));
}

uint32_t Crc32c(ByteSpan bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::string ShortHex(const Digest& digest) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += fmt::format("{:02x}", static_cast<unsigned>(digest[i]));
  return text;
}

Digest DigestFrom(std::string_view bytes) {
  Digest digest = {};
  if (bytes.size() == digest.size()) std::memcpy(digest.data(), bytes.data(), bytes.size());
  return digest;
}

}  // namespace mneme::memory
