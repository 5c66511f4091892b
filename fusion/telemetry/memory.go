package telemetry

import (
	"bufio"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// LimitMemory sets the size at which the garbage collector works harder and returns it. want 0 is three quarters of what the machine
// or the control group has. GOMEMLIMIT in the environment wins: the runtime has read it already.
func LimitMemory(want int64) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return debug.SetMemoryLimit(-1)
	}
	if want == 0 {
		if want = available() / 4 * 3; want == 0 {
			return debug.SetMemoryLimit(-1)
		}
	}
	debug.SetMemoryLimit(want)
	return want
}

// available is the memory of the control group, or of the machine when that is less; 0 when neither can be read.
func available() int64 {
	least := procField("/proc/meminfo", "MemTotal:") << 10
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number: no limit
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// AnonymousBytes is the resident memory that belongs to the process alone: heap and stacks, not the page cache and not mapped
// files. 0 when the system does not say.
func AnonymousBytes() int64 { return procField("/proc/self/status", "RssAnon:") << 10 }

// HeapBytes is the memory of live and not yet collected objects.
func HeapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// procField reads the number behind a name at the start of a line.
func procField(path, name string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
			return n
		}
	}
	return 0
}
