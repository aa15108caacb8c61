// Which sanitizer this test is compiled with: they keep memory of their own, which measurements of
// memory would count.
#pragma once

namespace mneme::support {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

inline constexpr bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

}  // namespace mneme::support
