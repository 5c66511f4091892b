package main

// laws6To10: slow subscribers, memory, hostile input, RocketMQ's clients. Law 8 is about imports, which integration/house looks at.
func laws6To10() []mutation {
	return []mutation{
		{
			law: "6", name: "messages are looked at although every group is offline", file: "store/state/machine.go",
			old: "return t != nil && t.attached > 0", new: "return t != nil && len(t.positions) > 0",
			pkg: inStore, test: "TestLaw6GroupsThatAreOfflineCostATopicNothing", small: true,
		},
		{
			law: "7", name: "done messages stay in the window", file: "store/state/window.go",
			old: "\t\tw.squeeze()\n", new: "",
			pkg: inState, test: "TestLaw7TheWindowFollowsWhatIsOpen", small: true,
		},
		{
			law: "7", name: "the dispatcher keeps every head that it is behind", file: "store/dispatch.go",
			old: "if len(d.mu.heads)+len(heads) > maxHeads {", new: "if false {",
			pkg: inStore, test: "TestLaw7TheDispatcherKeepsFewHeads",
		},
		{
			law: "7", name: "rows of what waits stay in memory", file: "store/runs/table.go",
			old: "if t.tail.rows >= t.flush {\n\t\tt.writeTail()\n\t}\n}\n\n// Delete", new: "if false {\n\t\tt.writeTail()\n\t}\n}\n\n// Delete",
			pkg: inRuns, test: "TestLaw7TableKeepsLittleInMemory",
		},
		{
			law: "7", name: "filter bits stay in memory", file: "store/bits/table.go",
			old: "if len(t.mu.loaded) <= maxLoaded {", new: "if true {",
			pkg: inBits, test: "TestLaw7EntriesOfFilesAreBounded",
		},
		{
			law: "7", name: "mapped segments are never let go", file: "store/log/mapped.go",
			old: "for len(vs.open) > vs.most {", new: "for false {",
			pkg: inLog, test: "TestLaw7MappingsFollowWhatIsRead",
		},
		{
			law: "9", name: "a length of a record is not compared with what is there", file: "store/record/record.go",
			old: "if n < 0 || at+n+2 > size {", new: "if n < 0 {",
			pkg: inRecord, test: "FuzzParse",
		},
		{
			law: "9", name: "as many operations are made room for as a record says", file: "store/state/codec.go",
			old: "n := d.count(MaxOps, 3, \"operations\")", new: "n := int(d.uvarint(MaxOps))",
			pkg: inState, test: "TestLaw9CountsAreBoundedByTheirBytes",
		},
		{
			law: "9", name: "the name of a queue may be longer than the record that restores it", file: "store/restate.go",
			old: "if uint64(len(b)) < k {", new: "if false {",
			pkg: inStore, test: "FuzzRestated",
		},
		{
			law: "9", name: "the size of an index file is not compared with its header", file: "store/queue/span.go",
			old: " ||\n\t\th.size != h.dirOffset()+h.dirBytes() {", new: " {",
			pkg: inQueue, test: "FuzzSpan",
		},
		{
			law: "9", name: "a record in the log may be longer than its segment", file: "store/log/aside.go",
			old: "if size < record.MinSize || size > s.size-off {", new: "if size < record.MinSize {",
			pkg: inLog, test: "FuzzRecover",
		},
		{
			law: "9", name: "a forged view has an address", file: "store/read.go",
			old: "if err == nil && (n == 0 || es[0].Address != at) {", new: "if err == nil && n == 0 {",
			pkg: inStore, test: "TestLaw9ForgedViewIsNoAddress", small: true,
		},
		{
			law: "10", name: "a client may send to a topic of ours", file: "store/append.go",
			old: "\tif t.system {\n\t\treturn ErrSystemTopic\n\t}\n", new: "",
			pkg: inStore, test: "TestLaw10SystemTopicsCannotBeSentTo", small: true,
		},
		{
			law: "10", name: "an Apache broker could start on our directory", file: "store/log/recover.go",
			old: "const MarkerName = \"fusionmq\"", new: "const MarkerName = \"00000000009999999999\"",
			pkg: inStore, test: "TestTextFilesAreWhatTheFormatPageSays",
		},
	}
}
