// Package crash is the tests that kill the server: SIGKILL under load again and again, then everything that was acknowledged must be where
// its answer said, byte for byte, and must reach a push group. What a power cut loses is tested inside the store, on a file system that
// forgets unsynced data; a killed process loses nothing that reached the page cache.
//
// Environment: CRASH_SEEDS how many seeds (default 1), CRASH_SEED one seed to repeat, SOAK_DURATION of the soak (default 10s).
package crash
