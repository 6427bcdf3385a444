package client

// EndRefusal has the time be up for which streams are not tried.
func (c *Client) EndRefusal() { c.refused.Store(1) }

// EndSuspicions has the time be up for which connections get no streams.
func (c *Client) EndSuspicions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.suspected)
}
