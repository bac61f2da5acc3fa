/* tests/fuzz/fuzz.h - the entry of a fuzz target: libFuzzer's, and runner.c's without it. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0; a fault is a crash, a failed assertion or a report of a sanitizer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
