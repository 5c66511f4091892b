package fusion

import "syscall"

// otherDescriptors is what the process has open beside connections: segments, index files, listeners, metadata being written.
const otherDescriptors = 512

// descriptorLimit is how many files and connections the process may have open; 0 when the system does not say.
func descriptorLimit() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int64(min(r.Cur, 1<<40)) // "unlimited" is a very large number
}
