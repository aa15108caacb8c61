// An Error as it travels, and back.
#pragma once

#include "base/error.h"
#include "proto/mneme/v1/error.pb.h"

namespace mneme::proto {

v1::Error ToWire(const Error& error);

// A code or reason this build does not know becomes kInternal without a reason; the message stays.
Error FromWire(const v1::Error& error);

}  // namespace mneme::proto
