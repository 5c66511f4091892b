package socket

import (
	"slices"
	"testing"
)

func TestLargestTakesWhatHoldsMostUntilTheExcessIsGone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		give   []int64
		excess int64
		want   []int64
	}{
		{"the largest is enough", []int64{3, 9, 5}, 9, []int64{9}},
		{"one byte more takes the next", []int64{3, 9, 5}, 10, []int64{9, 5}},
		{"what is empty is left", []int64{0, 4, 0}, 100, []int64{4}},
		{"no excess", []int64{1}, 0, nil},
	} {
		var got []int64
		Largest(tc.give, tc.excess, func(n int64) int64 { return n }, func(_, n int64) { got = append(got, n) })
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
