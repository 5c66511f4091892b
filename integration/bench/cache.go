package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// pageCache fills the page cache before a section, as it is on any machine that has stored messages for a day: a write then
// takes the page of something old. On a machine that was just started it takes one that was never used, which a virtual
// machine has to get from its host first: 2 to 3 microseconds of a broker's time a message of 1 KiB, ours and a peer's alike,
// and more in the sections that run late.
type pageCache struct {
	f    *os.File // of holes, as long as the memory
	size int64
	at   int64 // read on from here
}

// keepFree is left to programs.
const keepFree = 1 << 30

func (c *pageCache) fill(dir string) error {
	free, err := memory("MemFree")
	if err != nil {
		return err
	}
	if free -= keepFree; free < keepFree/2 {
		return nil
	}
	if c.f == nil {
		if c.size, err = memory("MemTotal"); err != nil {
			return err
		}
		if c.f, err = os.Create(filepath.Join(dir, "holes")); err != nil {
			return err
		}
		if err := c.f.Truncate(c.size); err != nil {
			return err
		}
	}
	began := time.Now()
	buf := make([]byte, 1<<20)
	for n := int64(0); n < free; {
		if c.at >= c.size {
			c.at = 0
		}
		k, err := c.f.ReadAt(buf, c.at)
		if k == 0 && err != nil && err != io.EOF {
			return err
		}
		n += int64(max(k, 1))
		c.at += int64(max(k, 1))
	}
	fmt.Printf("(the page cache took %.1f GiB of free memory in %.0f s)\n", float64(free)/(1<<30), time.Since(began).Seconds())
	return nil
}

// memory is a line of /proc/meminfo, in bytes.
func memory(name string) (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", name)
}
