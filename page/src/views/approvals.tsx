// What waits for the owner's decision.
import { ApprovalCard } from "../chat/approvals";
import { approvals } from "../core/stores";
import { EmptyState } from "../parts/states";
import { View } from "../parts/view";

export default function ApprovalsView() {
  return (
    <View title="Approvals" about="What agents may do only after your decision." needs="approve">
      {approvals.value.length ? (
        <div class="approval-list">
          {approvals.value.map((pending) => (
            <ApprovalCard key={pending.request.id} pending={pending} isElsewhere />
          ))}
        </div>
      ) : (
        <EmptyState icon="shield-check" title="Nothing waits for you">
          When an agent wants to do something that its rules do not allow, the request appears here and in its
          conversation.
        </EmptyState>
      )}
    </View>
  );
}
