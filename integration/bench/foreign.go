package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// busy is the CPU time that the whole machine has spent on anything.
func busy() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(first)
	var sum time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} { // user nice system irq softirq
		if i < len(f) {
			n, _ := strconv.Atoi(f[i])
			sum += time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
		}
	}
	return sum
}

// foreign begins to watch what processes other than this one and pids use; the function that it returns says how many cores that was.
// Figures from windows with more than a little of it are lower bounds of a rate and say next to nothing about a p99.
func (b *bench) foreign(pids ...int) func() float64 {
	ours := func() (sum time.Duration) {
		for _, p := range append(pids, os.Getpid()) {
			sum += cpuOf(p)
		}
		return sum
	}
	start, all, own := time.Now(), busy(), ours()
	return func() float64 {
		cores := max(((busy()-all)-(ours()-own)).Seconds()/time.Since(start).Seconds(), 0)
		b.others = append(b.others, cores)
		return cores
	}
}

// quietness says how much of the run can be believed.
func (b *bench) quietness() string {
	if len(b.others) == 0 {
		return ""
	}
	most, loud := 0.0, 0
	for _, c := range b.others {
		most = max(most, c)
		if c > 0.3 {
			loud++
		}
	}
	s := fmt.Sprintf("other processes used %.2f cores in the median window, %.2f at most", median(b.others), most)
	if loud > 0 {
		s += fmt.Sprintf("; %d of %d windows had more than 0.3: their rates are lower bounds, their p99 means little, CPU a message holds", loud, len(b.others))
	}
	return s
}
