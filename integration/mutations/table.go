package main

// Packages of the tests.
const (
	inStore  = "store"
	inLog    = "store/log"
	inQueue  = "store/queue"
	inLookup = "store/lookup"
	inState  = "store/state"
	inMeta   = "store/meta"
	inView   = "store/view"
	inRecord = "store/record"
	inRuns   = "store/runs"
	inBits   = "store/bits"
	inDedup  = "store/dedup"
	inCheck  = "store/check"
)

// table is every mutation, by law.
func table() []mutation {
	var all []mutation
	for _, ms := range [][]mutation{law1(), laws2And3(), law4(), law5(), laws6To10()} {
		all = append(all, ms...)
	}
	return all
}
