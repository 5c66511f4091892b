package config

import "strings"

// nearest gives the candidate that a person most likely meant by word, or "" when none is close. Letters may be missing, wrong
// or swapped, the dashes may be camel case, and the section may be left out or wrong.
func nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return "" // no key is that long, and comparing costs its length
	}
	best, bestCost := "", len(word)/3+2
	flat := squash(word)
	for _, c := range candidates {
		cost := distance(flat, squash(c))
		if last := c[strings.LastIndexByte(c, '.')+1:]; squash(last) == squash(word[strings.LastIndexByte(word, '.')+1:]) {
			cost = min(cost, 1) // the right key in the wrong section
		}
		if cost < bestCost {
			best, bestCost = c, cost
		}
	}
	return best
}

func squash(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
}

// distance is the number of letters to insert, remove, replace or swap with a neighbour to make b of a.
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
