package main

// law5: never lose, rarely repeat.
func law5() []mutation {
	return []mutation{
		{
			law: "5", name: "what is behind the end of the log is not cut", file: "store/log/recover.go",
			old: "return l.cut(segs[last], nil, r.End)", new: "return nil",
			pkg: inStore, test: "TestLogIsCutAtEveryByte",
		},
		{
			law: "5", name: "a record with a wrong checksum is replayed", file: "store/log/recover.go",
			old: "if err := v.CheckBody(); err != nil {\n\t\t\tr.Reason = err\n\t\t\treturn false, nil\n\t\t}\n", new: "",
			pkg: inStore, test: "TestFlippedBitsAreFound",
		},
		{
			law: "5", name: "a record whose properties were not all written is replayed", file: "store/log/recover.go",
			old: "if torn(v, pos) {", new: "if false {",
			pkg: inStore, test: "TestLogIsCutAtEveryByte",
		},
		{
			law: "5", name: "a bad record below what was synced ends the log", file: "store/log/damage.go",
			old: "if pos >= l.o.Durable {", new: "if true {",
			pkg: inStore, test: "TestLaw5LostPagesAreSteppedOver", small: true,
		},
		{
			law: "5", name: "a bad record above what was synced is stepped over", file: "store/log/damage.go",
			old: "if pos >= l.o.Durable {", new: "if false {",
			pkg: inStore, test: "TestLaw5SoundRecordsBehindADamagedOneAreKept",
		},
		{
			law: "5", name: "a record that was not written keeps its queue offset", file: "store/log/append.go",
			old: "\t\t\tif s := items[k].Seq; s != nil {\n\t\t\t\ts.next = items[k].QueueOffset\n\t\t\t}\n", new: "",
			pkg: inStore, test: "TestFailedWriteLeavesNothing",
		},
		{
			law: "5", name: "an outcome forgets the targets that failed", file: "store/state/machine.go",
			old: "for i := range op.Failed {\n\t\tf := &op.Failed[i]", new: "for i := range op.Failed[:0] {\n\t\tf := &op.Failed[i]",
			pkg: inState, test: "TestLaw1StateIsAFunctionOfTheLog", args: "-rapid.nofailfile", small: true,
		},
		{
			law: "5", name: "a detach forgets what is in flight", file: "store/state/machine.go",
			old: "m.wait(m.line(p.group, t, true), &waiting{address: s.address, position: s.position, size: s.size})\n", new: "",
			pkg: inState, test: "TestLaw5EachMessageIsOwedOnceToEachGroup", args: "-rapid.nofailfile",
		},
		{
			law: "5", name: "an attach owes what is below its record", file: "store/state/machine.go",
			old: "to = min(to, p.Attach)", new: "to = max(to, p.Attach)",
			pkg: inState, test: "TestLaw5EachMessageIsOwedOnceToEachGroup", args: "-rapid.nofailfile",
		},
		{
			law: "5", name: "a committed offset above the end stays", file: "store/meta/offsets.go",
			old: "c.Offset > e {", new: "c.Offset > e && e < 0 {",
			pkg: inStore, test: "TestCommittedOffsetsAreLoweredToTheEnd",
		},
		{
			law: "5", name: "what a group has not read goes without a word", file: "store/expire.go",
			old: "if first >= end {", new: "if true {",
			pkg: inStore, test: "TestLaw1AnswersAreTheSameWithoutViewsAfterSegmentsWereDeleted",
		},
		{
			law: "5", name: "two ends of one transaction are written", file: "store/halves.go",
			old: "switch other := s.claims.of[c]; {", new: "switch other := (*ending)(nil); {",
			pkg: inStore, test: "TestLaw5ConcurrentEndsOfATransactionAreOne",
		},
		{
			law: "5", name: "a due message is published by two at a time", file: "store/delays.go",
			old: "if ours {", new: "if ours || true {",
			pkg: inStore, test: "TestLaw5ACancelIsNotOvertakenByThePublish",
		},
		{
			law: "5", name: "the outcome of a transaction is not remembered", file: "store/state/hold.go",
			old: "if w, ok = m.get(spaceOutcome, address, 0); !ok {", new: "if w, ok = m.get(spaceOutcome, address, 0); true {",
			pkg: inStore, test: "TestLaw5OutcomeOfATransactionIsFinal",
		},
		{
			law: "5", name: "messages sent while a group attaches are owed to nobody", file: "store/pushstate.go",
			old: "d.marked = d.marked || yes\n", new: "",
			pkg: inStore, test: "TestMessagesBehindABindingAreOwedOnceEach",
		},
		{
			law: "5", name: "the dispatcher does not wait for who looked at a mark before it was set", file: "store/dispatch.go",
			old: "d.pushing.Lock()   // who", new: "// who",
			pkg: inStore, test: "TestLaw5MessagesSentAsAGroupAttachesAreOwed",
		},
		{
			law: "5", name: "what is in the window is not told after a start", file: "store/open.go",
			old: "if err := d.oweWindow(); err != nil {", new: "if err := error(nil); err != nil {",
			pkg: inStore, test: "TestWindowIsToldAgainAfterAStart",
		},
		{
			law: "5", name: "an operation names a body that is about to go", file: "store/bodies.go",
			old: "s.bodies.cut = position", new: "s.bodies.cut = 0",
			pkg: inStore, test: "TestLaw5OperationsNameNoBodyThatIsAboutToGo",
		},
		{
			law: "5", name: "a group's cursor goes beyond the record that moves it", file: "store/state/machine.go",
			old: "return m.cursor(t, p, min(op.First, at))", new: "return m.cursor(t, p, op.First)",
			pkg: inState, test: "TestLaw1StateIsAFunctionOfTheLog", args: "-rapid.nofailfile",
		},
		{
			law: "5", name: "what was sent back stays where it was when its record moves", file: "store/state/owed.go",
			old: "for _, w := range all {\n\t\t\tmove(spaceReturn, w)\n\t\t}", new: "_ = all",
			pkg: inState, test: "TestLaw1PlacesAreAFunctionOfTheLog", args: "-rapid.nofailfile",
		},
		{
			law: "5", name: "a take-over leaves what an earlier one held", file: "store/state/hold.go",
			old: "\t\tm.empty(spaceDelay, &m.stats.Delays)\n", new: "",
			pkg: inState, test: "TestLaw1PlacesAreAFunctionOfTheLog", args: "-rapid.nofailfile",
		},
		{
			law: "5", name: "what waits is not found under the topic that it is for", file: "store/waiting.go",
			old: "\treal.noteWaiting(b, m.Properties)\n", new: "",
			pkg: inStore, test: "TestLaw5WhatWaitsIsStoredOnce",
		},
		{
			law: "5", name: "an id is forgotten after the window although its message waits", file: "store/kept.go",
			old: "return may || covers < since && s.owedCount() > 0", new: "return false && (may || covers < 0)",
			pkg: inStore, test: "TestLaw5WhatWaitsIsStoredOnce",
		},
		{
			law: "5", name: "ids of what becomes owed long after it was sent are not kept", file: "store/kept.go",
			old: "case state.OpUpdate, state.OpReturn:", new: "case state.OpReturn:",
			pkg: inStore, test: "TestIDIsKnownWhileItsMessageIsOwed",
		},
		{
			law: "5", name: "a half that RocketMQ has rolled back makes its second send vanish", file: "store/dedup.go",
			old: "if half && id.topic != nil &&", new: "if half && false &&",
			pkg: inStore, test: "TestLaw5WhatWaitsIsStoredOnce",
		},
		{
			law: "5", name: "store time stands still while the clock is behind", file: "store/clock.go",
			old: "return c.slow(wall)", new: "return last",
			pkg: inStore, test: "TestClockThatIsSetBackHoldsNothing",
		},
		{
			law: "5", name: "a start ends at damage that nobody knew of", file: "store/open.go",
			old: "if !errors.As(err, &bad) {", new: "if true {",
			pkg: inStore, test: "TestQueuesWhoseIndexIsGoneStayInOrder",
		},
		{
			law: "5", name: "an id that is just being stored is taken for new", file: "store/dedup.go",
			old: "if _, busy := o.mu.flights[id.hash]; busy {", new: "if _, busy := o.mu.flights[id.hash]; false && busy {",
			pkg: inStore, test: "TestConcurrentSendsOfOneIDAreStoredOnce",
		},
		{
			law: "5", name: "acknowledgements of a pop are passed over", file: "store/rocketmq/pop.go",
			old: "if r.open &= ^s.all; more {", new: "if more {",
			pkg: inStore, test: "TestWhatAPopConsumerHasNotAcknowledgedComesAgain",
		},
		{
			law: "5", name: "a pop that came again comes once more", file: "store/rocketmq/pop.go",
			old: "ok && v.QueueOffset() <= last\n", new: "ok && v.QueueOffset() < last\n",
			pkg: inStore, test: "TestWhatAPopConsumerHasNotAcknowledgedComesAgain",
		},
	}
}
