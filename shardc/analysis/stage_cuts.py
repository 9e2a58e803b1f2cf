def balanced_cuts(flow,order,stages):
    return []
