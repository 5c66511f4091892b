package socket

import (
	"reflect"
	"runtime"
	"sync/atomic"

	"github.com/cloudwego/netpoll"
)

// States of a netpoll.FDOperator. The poller changes free to busy before it handles an event of the descriptor, and back behind it.
const (
	operatorGone = 0 // no event is handled any more
	operatorFree = 1
	operatorBusy = 2
)

// yield runs between two looks at what the poller does. Tests set it.
var yield = runtime.Gosched

// letGo returns when the poller does not read into np any more and will not, np being detached. The descriptor has left the poller's set by
// then, but its event may be in work, or in the batch that is: what the poller takes from the kernel after our last look at np would be in
// a buffer that nobody looks at again, and lost. netpoll waits for the poller as well, in the same way, but only to give the operator
// back, and then drops the buffer with it.
func letGo(np netpoll.Connection) {
	_, state := operatorOf(np)
	for !atomic.CompareAndSwapInt32(state, operatorFree, operatorGone) {
		if atomic.LoadInt32(state) == operatorGone {
			return
		}
		yield()
	}
}

// operatorOf returns what the poller holds of np, and the state of that, which is to be used atomically. netpoll does not export them;
// TestWhatThePollerReadsDuringAPauseIsKept needs them to be there.
func operatorOf(np netpoll.Connection) (op *netpoll.FDOperator, state *int32) {
	v := reflect.ValueOf(np).Elem().FieldByName("operator")
	return (*netpoll.FDOperator)(v.UnsafePointer()), (*int32)(v.Elem().FieldByName("state").Addr().UnsafePointer())
}
