module github.com/fusionmq/fusionmq/metaq

go 1.26.0

require (
	github.com/bytedance/sonic v1.15.5
	github.com/fusionmq/fusionmq/socket v0.0.0
	github.com/fusionmq/fusionmq/store v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.2 // indirect
	github.com/bits-and-blooms/bloom/v3 v3.7.1 // indirect
	github.com/bytedance/gopkg v0.1.3 // indirect
	github.com/bytedance/sonic/loader v0.5.3 // indirect
	github.com/cloudwego/base64x v0.1.6 // indirect
	github.com/cloudwego/gopkg v0.1.4 // indirect
	github.com/cloudwego/netpoll v0.7.2 // indirect
	github.com/klauspost/cpuid/v2 v2.2.9 // indirect
	github.com/twitchyliquid64/golang-asm v0.15.1 // indirect
	golang.org/x/arch v0.0.0-20210923205945-b76863e36670 // indirect
)

replace (
	github.com/fusionmq/fusionmq/socket => ../socket
	github.com/fusionmq/fusionmq/store => ../store
)
