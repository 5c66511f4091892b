//go:build !race

package store_test

// slower is how many times fewer seeds run: without the race detector.
const slower = 1
