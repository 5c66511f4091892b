package fusion

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/fusionmq/fusionmq/store"
)

// listenError is a listener that cannot be opened.
type listenError struct {
	name, addr string
	err        error
}

func (e *listenError) Unwrap() error { return e.err }

func (e *listenError) Error() string {
	key := e.name + ".addr"
	change := fmt.Sprintf("choose another with %s (--%s-addr, FUSIONMQ_%s_ADDR), or close it with off", key, e.name, strings.ToUpper(e.name))
	switch {
	case errors.Is(e.err, syscall.EADDRINUSE):
		return fmt.Sprintf("%s is %s, which another process has; %s", key, e.addr, change)
	case errors.Is(e.err, syscall.EACCES):
		return fmt.Sprintf("%s is %s, which this user may not open (ports below 1024 need a privilege); %s", key, e.addr, change)
	case errors.Is(e.err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("%s is %s, which is no address of this machine; %s", key, e.addr, change)
	default:
		return fmt.Sprintf("%s is %s, which cannot be opened: %v; %s", key, e.addr, e.err, change)
	}
}

// explain adds to a failed start what to do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Errorf("%w; one data directory serves one process: stop the other one, or give this one its own with --data", err)
	case errors.Is(err, store.ErrConfigChanged):
		return fmt.Errorf("%w (key store.segment-size)", err)
	}
	return err
}
