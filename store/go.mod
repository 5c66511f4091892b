module github.com/fusionmq/fusionmq/store

go 1.26.0

