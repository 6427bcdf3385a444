module github.com/ratelimitd/ratelimitd/internal/bucket

go 1.26.0

require github.com/cespare/xxhash/v2 v2.3.0
