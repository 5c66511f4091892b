package broker

import (
	"fmt"
	"testing"
	"testing/synctest"
)

func TestCreationsOfDifferentNamesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c creations
		unlock := c.lock("orders")
		same := make(chan struct{})
		go func() { c.lock("orders")(); close(same) }()
		free := 0
		done := make(chan struct{}, 100)
		for i := range cap(done) {
			go func() { c.lock(fmt.Sprintf("topic-%d", i))(); done <- struct{}{} }()
		}
		// At least half of a hundred names have another lock than "orders", or this waits for ever.
		for free < 50 {
			<-done
			free++
		}
		select {
		case <-same:
			t.Error("the same name was given out twice")
		default:
		}
		unlock()
		<-same
	})
}
