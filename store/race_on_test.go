//go:build race

package store_test

// slower is how many times fewer seeds run: with the race detector.
const slower = 20
