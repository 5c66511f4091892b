package vfs

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrFault is what reading mapped memory gives where the file behind it has no bytes any more: somebody else has cut it, or the disk
// could not deliver them.
var ErrFault = errors.New("vfs: mapped file cannot be read, it was cut or the disk failed")

const faultPage = 4096

// Touch reads a byte of every page of b and returns ErrFault when one is not there. Afterwards the bytes can be used, unless the file
// is cut in that very moment.
func Touch(b []byte) (err error) {
	if len(b) == 0 {
		return nil
	}
	defer CatchFault(debug.SetPanicOnFault(true), &err)
	var sum byte
	for i := 0; i < len(b); i += faultPage {
		sum |= b[i]
	}
	touched(sum | b[len(b)-1])
	return nil
}

//go:noinline
func touched(byte) {} // so that the reads are not left out

// CatchFault is deferred, as in
//
//	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
//
// by who reads mapped memory piece by piece: a fault ends the function with an ErrFault in err instead of the process.
func CatchFault(before bool, err *error) {
	debug.SetPanicOnFault(before)
	r := recover()
	if r == nil {
		return
	}
	f, ok := r.(interface{ Addr() uintptr }) // of the runtime's errors only those of memory have one
	if !ok {
		panic(r)
	}
	*err = fmt.Errorf("%w (at %#x)", ErrFault, f.Addr())
}
