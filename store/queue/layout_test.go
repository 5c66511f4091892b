package queue

import (
	"testing"
	"unsafe"
)

// TestQueueIsTwoCacheLines holds the layout that Queue's comment argues for.
func TestQueueIsTwoCacheLines(t *testing.T) {
	var q Queue
	if got := unsafe.Sizeof(q); got != 128 {
		t.Errorf("a Queue has %d bytes, want 128", got)
	}
	if got := unsafe.Offsetof(q.min); got != 64 {
		t.Errorf("what Put does not need begins at byte %d, want 64", got)
	}
}
