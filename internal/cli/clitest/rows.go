package clitest

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/admin/v1"
	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

// Customers is a CSV file with all columns: 6 rows of 4 customers.
const Customers = `domain,entries,plan,limits,starts,time_zone,unlimited,blocked,until,reason
api,tenant=acme,pro,,15,Europe/Berlin,,,,contract 4711
api,tenant=acme,,month=6000000,,,,,2254-12-31,relief
api,tenant=acme,free,,,,true,,2254-12-30T18:00:00Z,
api,"tenant=acme,region=eu",,month=5000000/30d;100/1s,,,,,,
api,tenant=monitoring,,,,,true,,,
login,address=192.0.2.7,,,,,,true,2255-01-01T00:00:00Z,"guesses ""passwords"""
`

// farEnd is a time in the far future.
func farEnd(second int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2255, 1, 2, 3, 4, second, 6000, time.UTC))
}

// HostileAssignments returns assignments whose texts contain the syntax of the formats.
func HostileAssignments() []*adminv1.Assignment {
	entries := func(words ...string) (list []*ratelimitv1.Entry) {
		for i := 0; i < len(words); i += 2 {
			list = append(list, &ratelimitv1.Entry{Key: words[i], Value: words[i+1]})
		}
		return list
	}
	return []*adminv1.Assignment{
		{Domain: "api", Entries: entries("tenant", ""), Plan: "pro"},
		{Domain: " api,\"x\"", Entries: entries("a=b", "c=d", ",", `\`), Plan: " p;\\", Reason: `=1+1, "quoted" `},
		{Domain: "{", Entries: entries(" a / b ", `\,`, "x ", " y "), Temporary: []*adminv1.TemporaryLayer{{Blocked: true, Until: farEnd(5), Reason: ";"}}},
		{Domain: "#", Entries: entries("é", "日本"), Unlimited: true},
		{Domain: "api", Entries: entries("n", "1"), Numbers: []*adminv1.AssignedNumbers{
			{Requests: 0},
			{Limit: ` a=b;c\ ,/`, Requests: 1 << 52, Period: durationpb.New(1500 * time.Millisecond), Burst: 1<<52 - 1, BlockFor: durationpb.New(90 * time.Second)},
			{Limit: "login", Requests: 5, BlockFor: durationpb.New(10 * time.Minute)},
			{Limit: "month", Requests: 5, Period: durationpb.New(30 * 24 * time.Hour)},
		}},
		{
			Domain: "api", Entries: entries("all", "1"), Plan: "pro", Unlimited: true, Blocked: true, Reason: "base",
			Numbers: []*adminv1.AssignedNumbers{{Requests: 1}, {Limit: "day", Requests: 2}, {Limit: "month", Requests: 5}},
			Temporary: []*adminv1.TemporaryLayer{
				{Plan: "free", Until: farEnd(4), Reason: "bottom"},
				{Numbers: []*adminv1.AssignedNumbers{{Requests: 3}, {Limit: "day", Requests: 4}}, Plan: "pro", Until: farEnd(3)},
				{Calendar: &adminv1.AssignedCalendar{Starts: "1"}, Until: farEnd(2), Reason: "until,"},
			},
		},
		{Domain: "api", Entries: entries("billing", "1"), Calendar: &adminv1.AssignedCalendar{Starts: "15 06:00", TimeZone: "Europe/Berlin"}},
		{Domain: "api", Entries: entries("zone", "1"), Calendar: &adminv1.AssignedCalendar{TimeZone: "America/Argentina/Buenos_Aires"}, Plan: "pro"},
	}
}
