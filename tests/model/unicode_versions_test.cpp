// The table is sorted and holds what it was made for; that it is complete is shown by
// TokenizerTest.EncodesEveryCodePointAsTheLibraryDoes.
#include "model/unicode_versions.h"

#include <gtest/gtest.h>

namespace mneme::model {
namespace {

TEST(UnicodeVersionsTest, KnowsMarksSinceUnicode10AndNoOlderOnes) {
  for (const char32_t character : {0x1DF6, 0x1DF7, 0x1DFA, 0x5C8, 0x1E6F5, 0x11938, 0x897}) {
    EXPECT_TRUE(IsUnknownToNfc(character)) << static_cast<uint32_t>(character);
  }
  for (const char32_t character :
       {0, 0x41, 0x300, 0x323, 0x1DF5, 0x1DFB, 0x5CA, 0x5C7, 0xAC00, 0x1E6F6, 0x10FFFF}) {
    EXPECT_FALSE(IsUnknownToNfc(character)) << static_cast<uint32_t>(character);
  }
}

}  // namespace
}  // namespace mneme::model
