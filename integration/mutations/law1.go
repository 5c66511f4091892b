package main

// law1: the log is the truth.
func law1() []mutation {
	return []mutation{
		{
			law: "1", name: "a checkpoint of a clean stop is trusted although the last stop was none", file: "store/open.go",
			old: "c.position, clean && ok && c.clean, func", new: "c.position, ok && c.clean, func",
			pkg: inStore, test: "TestLaw1ACheckpointDoesNotOutliveItsLog", small: true,
		},
		{
			law: "1", name: "a checkpoint of a clean stop is trusted although the log goes on behind it", file: "store/log/recover.go",
			old: "r.Older, trusted = older, !older", new: "r.Older = older",
			pkg: inCheck, test: "TestLaw1AnOlderCheckpointIsNotBelieved", small: true,
		},
		{
			law: "1", name: "a checkpoint that reaches beyond the log is trusted", file: "store/open.go",
			old: "c.position < s.log.Min() || c.position > s.log.Limit()", new: "c.position < s.log.Min()",
			pkg: inStore, test: "TestLaw1ACheckpointDoesNotOutliveItsLog",
		},
		{
			law: "1", name: "an index file that reaches beyond the log is trusted", file: "store/queue/load.go",
			old: "s.end <= x.cfg.LogEnd && ", new: "",
			pkg: inQueue, test: "TestLaw1IndexIsAFunctionOfTheLog", args: "-rapid.nofailfile",
		},
		{
			law: "1", name: "a key file that reaches beyond the log is trusted", file: "store/lookup/load.go",
			old: "f.end <= c.LogEnd && ", new: "",
			pkg: inLookup, test: "TestFilesBeyondTheEndOfTheLogAreNotBelieved",
		},
		{
			law: "1", name: "filter bits that reach beyond the log are trusted", file: "store/bits/table.go",
			old: " && end <= c.LogEnd {", new: " {",
			pkg: inStore, test: "TestFilterBitsNeverOutliveTheirMessages",
		},
		{
			law: "1", name: "state is not said again before its segment goes", file: "store/retain.go",
			old: "err = s.restate(position)", new: "err = nil",
			pkg: inStore, test: "TestLaw1AnswersAreTheSameWithoutViewsAfterSegmentsWereDeleted", small: true,
		},
		{
			law: "1", name: "state is said again, but not where queues without entries go on", file: "store/restate.go",
			old: "bs := s.index.BoundsBelow(position)", new: "bs := s.index.BoundsBelow(-1)",
			pkg: inStore, test: "TestLaw1AnswersAreTheSameWithoutViewsAfterSegmentsWereDeleted",
		},
		{
			law: "1", name: "of state in pieces the first one is taken for all of it", file: "store/restate.go",
			old: "if p.last {\n\t\tr.whole", new: "if p.part == 0 {\n\t\tr.whole",
			pkg: inStore, test: "TestLaw1RestatedStateIsTakenWhole",
		},
		{
			law: "1", name: "of state in pieces those that are there are taken, before the last one is", file: "store/restate.go",
			old: "if p.last {\n\t\tr.whole", new: "if p.last || p.part > 0 {\n\t\tr.whole",
			pkg: inStore, test: "TestLaw1StateInPiecesIsNeverHalfApplied",
		},
		{
			law: "1", name: "ids of moved messages are not in the key index", file: "store/lookup.go",
			old: "if string(v.Topic()) == MovedTopic {", new: "if false {",
			pkg: inStore, test: "TestLaw1IDOfAMovedMessageIsKnown",
		},
		{
			law: "1", name: "what is owed by name does not move", file: "store/retain.go",
			old: "\terr := s.relocateBelow(position)", new: "\tvar err error",
			pkg: inStore, test: "TestLaw1AnswersAreTheSameWithoutViewsAfterSegmentsWereDeleted", small: true,
		},
		{
			law: "1", name: "what becomes owed while the rest moves does not move", file: "store/retain.go",
			old: "if any, err = s.relocateLate(position); err == nil {", new: "if any = false; err == nil {",
			pkg: inStore, test: "TestLaw1StateIsRestatedWhileItGoesOn",
		},
		{
			law: "1", name: "what is owed moves, and nothing says where to", file: "store/state/owed.go",
			old: "s.position, s.size, found = op.Last, op.Size, true", new: "found = true",
			pkg: inStore, test: "TestLaw1AnswersAreTheSameWithoutViewsAfterSegmentsWereDeleted",
		},
		{
			law: "1", name: "a segment goes before what replaces it is synced", file: "store/retain.go",
			old: "err == nil {\n\t\t\terr = s.log.Sync()\n\t\t}", new: "err == nil {\n\t\t}",
			pkg: inStore, test: "TestLaw1PowerCutsAtEveryOperationOfADeletion",
		},
		{
			law: "1", name: "the names of segments go without a sync of their directory in between", file: "store/log/delete.go",
			old: "if err := l.o.FS.SyncDir(l.o.Dir); err != nil {", new: "if err := error(nil); err != nil {",
			pkg: inStore, test: "TestLaw1PowerCutsAtEveryOperationOfADeletion",
		},
		{
			law: "1", name: "replay gives a view the position of its body for an address", file: "store/publish.go",
			old: "queue.Entry{Address: v.PhysicalOffset() + int64(show.Back), Position", new: "queue.Entry{Address: show.Position, Position",
			pkg: inStore, test: "TestLaw1OrderIsThatOfAddressesAndNotOfBodies", small: true,
		},
		{
			law: "1", name: "replay takes a message for known whose body is below the last record", file: "store/state/machine.go",
			old: "if h.Address <= m.at {\n\t\treturn Owed{}, false", new: "if h.Position <= m.at {\n\t\treturn Owed{}, false",
			pkg: inStore, test: "TestLaw1OrderIsThatOfAddressesAndNotOfBodies",
		},
		{
			law: "1", name: "expiry compares positions of bodies, in memory", file: "store/queue/queue.go",
			old: "return r.at(i).address >= at })\n\treturn max(low, r.base+int64(i)), nil", new: "return r.at(i).position >= at })\n\treturn max(low, r.base+int64(i)), nil",
			pkg: inStore, test: "TestLaw1OrderIsThatOfAddressesAndNotOfBodies",
		},
		{
			law: "1", name: "expiry compares positions of bodies, in index files", file: "store/queue/span.go",
			old: "a, err := s.address(int(p.at) + i)\n\t\tfailed = cmp.Or(failed, err)\n\t\treturn a >= at", new: "var e [1]Entry\n\t\terr := s.read(int(p.at)+i, e[:])\n\t\tfailed = cmp.Or(failed, err)\n\t\treturn e[0].Position >= at",
			pkg: inStore, test: "TestLaw1OrderIsThatOfAddressesAndNotOfBodies",
		},
		{
			law: "1", name: "lag: a cursor's reader merges queues by positions of bodies", file: "store/queue/topic.go",
			old: "return h.buf[h.at].Address }", new: "return h.buf[h.at].Position }",
			pkg: inStore, test: "TestLaw1OrderIsThatOfAddressesAndNotOfBodies",
		},
		{
			law: "1", name: "ids that were stored once are forgotten at a start", file: "store/open.go",
			old: "s.once.init(s.o.OnceWindow, s.o.OnceBytes, r.End, s.log.LastTime()+1)", new: "s.once.init(s.o.OnceWindow, s.o.OnceBytes, r.End, 0)",
			pkg: inStore, test: "TestLaw1AnIDFromBeforeAStartIsKnown", small: true,
		},
		{
			law: "1", name: "filter bits answer for messages from before the filter was known", file: "store/bits/table.go",
			old: "h = covered{id, at, forever}", new: "h = covered{id, c.start, forever}",
			pkg: inBits, test: "TestLaw1BitsAnswerForTheFiltersOfTheirTime",
		},
		{
			law: "1", name: "filter bits answer for a filter that is not followed any more", file: "store/bits/table.go",
			old: "h.to = min(h.to, at)", new: "h.to = min(h.to, forever)",
			pkg: inBits, test: "TestLaw1BitsAnswerForTheFiltersOfTheirTime",
		},
		{
			law: "1", name: "a replay applies an operation twice", file: "store/state/machine.go",
			old: "if at <= m.at {\n\t\treturn\n\t}\n\tm.at = at\n\tm.forgetOutcomes()", new: "m.at = at\n\tm.forgetOutcomes()",
			pkg: inState, test: "TestLaw1StateIsAFunctionOfTheLog", args: "-rapid.nofailfile",
		},
		{
			law: "1", name: "what a client writes into the properties of light queues counts", file: "store/light.go",
			old: "if v.PhysicalOffset() >= s.foreign {", new: "if false {",
			pkg: inStore, test: "TestLaw1LightQueuesAreAFunctionOfTheLog",
		},
	}
}
