"""The backends: each turns a `kproxy.proxy.plan.Plan` into one kernel subsystem's rules, and applies them."""
