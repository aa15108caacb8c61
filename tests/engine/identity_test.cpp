// Two identities that differ in one thing, and the sentence that says so and what to do.
#include "engine/identity.h"

#include <gtest/gtest.h>

namespace mneme::engine {
namespace {

// An identity with these hashes' first digits and reader; the rest is the same in all.
std::string Identity(const std::string& weights, const std::string& router,
                     const std::string& tokenizer, const std::string& reader,
                     const std::string& theta = "0.1") {
  const auto hash = [](const std::string& digits) {
    return digits + std::string(64 - digits.size(), digits == "0" ? '0' : '7');
  };
  return "weights=" + hash(weights) + " router=" + hash(router) + " tokenizer=" + hash(tokenizer) +
         " reader=" + reader + " theta=" + theta + " window=16 layout=1 policy=exact";
}

const std::string kHere = Identity("aaaaaaaa", "bbbbbbbb", "cccccccc", "hla");

TEST(IdentityTest, FindsAField) {
  EXPECT_EQ(IdentityField(kHere, "reader"), "hla");
  EXPECT_EQ(IdentityField(kHere, "policy"), "exact");
  EXPECT_EQ(IdentityField(kHere, "read"), "");
  EXPECT_EQ(IdentityField("", "reader"), "");
}

TEST(IdentityTest, SaysWhichPartOfTheModelDiffers) {
  EXPECT_EQ(
      IdentityDifference(kHere, Identity("aaaaaaaa", "12345678", "cccccccc", "hla")),
      "it was made with another model: other router (12345678 in the session, bbbbbbbb here); "
      "serve it with the model folder that it was made with, or open another session");
  EXPECT_EQ(
      IdentityDifference(kHere, Identity("1234", "bbbbbbbb", "99", "hla", "0.2")),
      "it was made with another model: other weights (12347777 in the session, aaaaaaaa "
      "here), tokenizer (99777777 in the session, cccccccc here), and other theta (0.2 in the "
      "session, 0.1 here); serve it with the model folder that it was made with, or open "
      "another session");
}

TEST(IdentityTest, AnotherReaderOfTheSameModelIsOnlyThat) {
  const std::string native = Identity("aaaaaaaa", "0", "cccccccc", "native", "0");
  EXPECT_EQ(IdentityDifference(kHere, native),
            "it was made with another reader; serve it with --reader native");
  EXPECT_EQ(IdentityDifference(native, kHere),
            "it was made with another reader; serve it with --reader hla");
  EXPECT_NE(IdentityDifference(kHere, Identity("aaaaaaaa", "dd", "cccccccc", "native"))
                .find("another model: other router (dd777777"),
            std::string::npos);
}

TEST(IdentityTest, OtherSettingsAreNamedWithBothValues) {
  EXPECT_EQ(IdentityDifference(kHere, Identity("aaaaaaaa", "bbbbbbbb", "cccccccc", "hla", "0.5")),
            "it was made with other settings: theta (0.5 in the session, 0.1 here); serve it with "
            "those, or open another session");
}

TEST(IdentityTest, AnIdentityOfOtherFieldsIsAnotherVersions) {
  EXPECT_EQ(
      IdentityDifference("weights=1", "weights=1 more=2"),
      "it was made by another version of this server; serve it with that one (weights=1 here, "
      "weights=1 more=2 in the session)");
}

}  // namespace
}  // namespace mneme::engine
