package check

func (c *checker) rocketmq(segments []segmentFile) error {
	l := logScan{c: c, segments: segments}
	return l.run()
}
